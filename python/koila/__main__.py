"""``python -m koila``."""

from koila._cli import main

raise SystemExit(main())
