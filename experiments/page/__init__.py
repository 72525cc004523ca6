"""The live page: a running lab, or a finished run, as a picture that can be touched.

Three processes have a part in it::

    browser  == WebSocket ==  page's server  -- one socket --  gate (root)  --  the lab's socket
    draws                     records           JSON lines     lets through
                              no root, no capability           what a page may ask

docs/page.md says what they tell one another.
"""
