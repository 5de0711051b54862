"""What the site has besides the pages that people write: a Sphinx extension, named in ``_config.yml``.

`search` writes the index of pages, `lists` fills in the lists of figures, exercises and pitfalls, and `buttons` the
menus at the top of a page. `pictures` makes pictures small, `formulas` sets the formulas that Sphinx does not see, and
`text` mends what is left. Nothing here is imported by a chapter's cells, so a change here executes no chapter again.
"""


def setup(app):
    """Connect the parts to Sphinx."""
    from coursebook.site import buttons, formulas, lists, pictures, search, text

    app.add_config_value("site_branch", "gh-pages", "html")
    for part in (search, lists, buttons, pictures, formulas, text):
        part.connect(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
