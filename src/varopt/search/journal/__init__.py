"""The journal: every evaluation in an SQLite file, before it is used."""

from varopt.search.journal._journal import FORMAT, Course, Courses, Journal, OtherJournal, Record, damaged, is_blank

__all__ = ["FORMAT", "Course", "Courses", "Journal", "OtherJournal", "Record", "damaged", "is_blank"]
