"""What the site has besides the pages that people write: a Sphinx extension, named in ``_config.yml``.

`search` finds definitions first, `lists` fills in the page of figures and pitfalls, `buttons` makes the menus at the
top of a page, `weight` makes pages light, and `start` the cell with which a notebook sets itself up. `printing` makes
one PDF and one archive of the site that was built. Nothing here is imported by a chapter's cells, so a change here
executes no chapter again.
"""


def setup(app):
    """Connect the parts to Sphinx."""
    from coursebook.site import buttons, lists, search, weight

    app.add_config_value("site_branch", "gh-pages", "html")
    for part in (search, lists, buttons, weight):
        part.connect(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
