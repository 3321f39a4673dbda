"""What experiments share: command lines, cells, runner, reports, drawings."""
