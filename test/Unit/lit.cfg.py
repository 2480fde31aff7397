# Runs the GoogleTest program in the build folder; each of its tests counts.

import lit.formats

config.name = "koila-unit"
config.suffixes = []
config.test_source_root = config.test_exec_root
config.test_format = lit.formats.GoogleTest(".", "UnitTests")
