"""The live page: an interactive web page of a running lab or a finished run.

Three processes take part::

    browser  == WebSocket ==  page's server  -- one socket --  gate (root)  --  the lab's socket
    draws                     records           JSON lines     checks each
                              no root, no capability           page request

docs/page.md specifies their messages.
"""
