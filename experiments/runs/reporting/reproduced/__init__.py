"""What came of a figure that was made again: the record, its drawing, its page."""
