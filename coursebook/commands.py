"""The commands of ``mlcourse`` that build the site (see `mlcourse.cli`). Each imports what it needs when it runs."""

from importlib.util import find_spec

if find_spec("jupyter_book") is None:
    raise ModuleNotFoundError("the dependencies of the group book are not installed")

EXAMPLES = """
For readers and maintainers of the book:
  mlcourse book serve                                build the site and serve it on this machine
  mlcourse book build                                build the site into _build/html
"""


def add_commands(command):
    """Add the command ``book`` and its actions.

    Parameters
    ----------
    command : callable
        Adds a command: ``command(name, run, says, example)`` returns its parser.
    """
    parser = command("book", build, "build the site, serve, print or compare it", "mlcourse book serve --port 8001")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(name, run, says):
        one = actions.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        one.set_defaults(run=run)
        return one

    action("build", build, "build the site into _build/html")
    action("execute", execute, "execute the chapters that changed, without building the site")
    one = action("serve", serve, "build the site and serve it on this machine")
    one.add_argument("--port", type=int, default=8000, help="the port (default: %(default)s)")
    action("cold", cold, "execute every chapter, and every lab in source/, without a cache, and print their times")
    one = action("sweep", sweep, "run the claims of pages that hold for many draws with other seeds")
    one.add_argument("pages", nargs="*", metavar="PAGE", help="a page such as model-selection/index (default: all)")
    one.add_argument("--seeds", type=int, default=100, help="how many seeds (default: %(default)s)")
    action("pdf", pdf, "print the whole book into _build/book.pdf")
    action("offline", offline, "pack the site into _build/book-offline.zip")
    action("site", site, "write the site to publish into _build/site, with the PDF and the archive to download")
    one = action("diff", diff, "list the numbers and figures that differ from the site of an earlier revision")
    one.add_argument("revision", metavar="REVISION", help="a commit, branch or tag")


def build(options):
    """Build the site."""
    from coursebook.build import build

    build()


def execute(options):
    """Execute the chapters that changed."""
    from coursebook.build import execute

    execute()


def serve(options):
    """Build the site and serve it until interrupted."""
    from coursebook.build import serve

    serve(options.port)


def cold(options):
    """Execute everything without a cache."""
    from coursebook.build import cold

    cold()


def sweep(options):
    """Run the claims for many seeds."""
    from coursebook.sweep import sweep

    sweep(options.seeds, options.pages)


def pdf(options):
    """Print the book."""
    from coursebook.printing import print_book

    print_book()


def offline(options):
    """Pack the site."""
    from coursebook.printing import pack_site

    pack_site()


def site(options):
    """Write the site to publish."""
    from coursebook.printing import complete_site

    complete_site()


def diff(options):
    """Print what differs from an earlier site, and return 1 if something does."""
    from coursebook.build import ROOT
    from coursebook.site_diff import diff_site, report

    changes = diff_site(options.revision, ROOT)
    print(report(changes, options.revision))
    return int(bool(changes))
