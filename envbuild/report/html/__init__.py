"""The page of a report: values to text, without a template engine. All text is escaped where an element is made."""
