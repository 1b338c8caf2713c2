"""A journal as a page: one HTML file that needs nothing else, or a server on this machine that follows a search."""

from varopt.search.page._follow import Follower
from varopt.search.page._html import journal_page
from varopt.search.page._server import page_server

__all__ = ["Follower", "journal_page", "page_server"]
