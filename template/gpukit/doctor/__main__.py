import sys

from gpukit.doctor import main

sys.exit(main())
