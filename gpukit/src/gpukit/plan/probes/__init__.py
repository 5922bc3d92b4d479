"""Programs that plan runs in processes of their own: they import what plan itself must not."""
