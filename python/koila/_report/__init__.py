"""Reports on what a program needs."""

from koila._report.report import Report, ReportDiff

__all__ = ["Report", "ReportDiff"]
