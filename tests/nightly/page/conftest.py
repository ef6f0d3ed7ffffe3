from tests.flow.page.conftest import chromium, contexts, open_tab, port, site, tab

__all__ = ["chromium", "contexts", "open_tab", "port", "site", "tab"]
