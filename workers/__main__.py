"""The entry of a worker process. It is run as a file, with the interpreter's `-P`: the working directory, where a user
may have a `workers` package too, is then not on the path.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parent.parent)
if _ROOT not in sys.path:
    sys.path.append(_ROOT)  # a checkout that is not installed

from workers.system import die_with_parent  # noqa: E402 - before anything slow is imported

if "--parent" in sys.argv:
    die_with_parent(int(sys.argv[sys.argv.index("--parent") + 1]))

from workers.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
