"""Write pages again whose citations lead to another place, as they do once the bibliography gains or loses a work."""


def connect(app):
    """Compare the places before and after the bibliography is read."""
    app.connect("env-get-outdated", _remember)
    app.connect("env-updated", _pages_to_write_again, priority=900)  # after sphinxcontrib.bibtex


def _places(env):
    """Map the key of each work to its label and to the anchor in the bibliography."""
    return {one.key: (one.formatted_entry.label, one.citation_id) for one in env.get_domain("cite").citations}


def _remember(_, env, *__):
    env.mlcourse_citations_before = _places(env)
    return []


def _pages_to_write_again(_, env):
    now, before = _places(env), vars(env).pop("mlcourse_citations_before")
    changed = {key for key in now.keys() | before.keys() if now.get(key) != before.get(key)}
    return sorted(
        {ref.docname for ref in env.get_domain("cite").citation_refs if changed & {one.key for one in ref.targets}}
    )
