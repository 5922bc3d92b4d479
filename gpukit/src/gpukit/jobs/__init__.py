"""The queue of training jobs on one machine: `./launch submit` and `./launch jobs`."""
