import sys

from gpukit.verify import main

sys.exit(main())
