"""JupyterHub for one class on one machine, with the users of the system and nbgrader's exchange.

`set_up.py` copies this file, and writes ``hub.json`` beside it. Your own settings, such as the certificate, belong into
``local_config.py`` beside it, which is read last.
"""

import json
import os
import pwd
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from jupyterhub.auth import PAMAuthenticator
from jupyterhub.spawner import LocalProcessSpawner
from tornado.web import HTTPError

c = get_config()  # noqa: F821 (JupyterHub defines it)

HERE = Path(__file__).resolve().parent
HUB = json.loads((HERE / "hub.json").read_text("utf-8"))
STATE = HERE / "state"

# Only this machine reaches these addresses
c.JupyterHub.bind_url = f"http://127.0.0.1:{HUB['port']}"
c.ConfigurableHTTPProxy.api_url = f"https://127.0.0.1:{HUB['port'] + 1}"
c.JupyterHub.hub_bind_url = f"https://127.0.0.1:{HUB['port'] + 2}"
# Each person's server has a name of its own, so that no page of one acts in the browser as another
c.JupyterHub.subdomain_host = HUB["address"] or ""
# ... nor gives it a cookie by which the hub takes its reader for somebody else; browsers ask for a certificate for that
c.JupyterHub.cookie_host_prefix_enabled = c.JupyterHub.subdomain_host.startswith("https:")
# Everybody on this machine can take a port on which a server is about to listen, or has just listened. The proxy passes
# on an answer only if it comes with a certificate for the name that the browser asked for. The hub makes the
# certificates, its own once for each address.
HOST = urlsplit(HUB["address"] or "").hostname
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = str(STATE / "certificates" / (HOST or "127.0.0.1"))
if HOST:
    # The hub answers below the names of servers that do not run; each server has its own name alone
    c.JupyterHub.trusted_alt_names = [f"DNS:*.{HOST}"]
    c.Spawner.ssl_alt_names = lambda spawner: [f"DNS:{spawner.user.domain}"]
c.ConfigurableHTTPProxy.command = [str(HERE / "proxy" / "node_modules" / ".bin" / "configurable-http-proxy")]
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.JupyterHub.db_url = f"sqlite:///{STATE / 'hub.sqlite'}"
c.JupyterHub.cleanup_servers = False  # a restart of the hub stops nobody's work


class AccountAuthenticator(PAMAuthenticator):
    """People log in with the name and the password that they have on this machine.

    The hub writes names in small letters. Nobody gets in whose account has another name than the hub would give them:
    ``Ivy`` would become ``ivy``, who may be somebody else. Nor does anybody at the name of a server, where the hub
    answers, too: the server would get the cookie.
    """

    def authenticate(self, handler, data):
        """Return the name if the password is right; None if not, or if the account has another name than the hub's."""
        if HOST:
            # A page of a server could also hand in the name and the password of its owner
            site = handler.request.headers.get("Sec-Fetch-Site", "same-origin")
            if handler.request.host_name != HOST or site != "same-origin":
                raise HTTPError(403, f"Log in at {HUB['address']}")
        try:
            account = pwd.getpwnam(data["username"]).pw_name
        except (KeyError, ValueError):  # there is none, which takes as long to say as that the password is wrong
            return super().authenticate(handler, data)
        if account != self.normalize_username(data["username"]):
            self.log.warning("The account %r has capital letters in its name: give it another", account)
            return None
        return super().authenticate(handler, data)


c.JupyterHub.authenticator_class = AccountAuthenticator
c.Authenticator.allowed_users = {HUB["instructor"]}
c.Authenticator.allowed_groups = {HUB["group"]}


class CertifiedSpawner(LocalProcessSpawner):
    """Start servers as users of the system, with certificates that stand outside of their homes."""

    async def move_certs(self, paths):
        """Give a user the files of the certificate, in a folder where only root makes files, and return their paths.

        JupyterHub's own method writes into the home as root, and follows the links that its user put there.
        """
        folder = HERE / "certificates" / self.user.name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        moved = {what: str(folder / Path(path).name) for what, path in paths.items()}
        shutil.copy(paths["cafile"], moved["cafile"])  # that of all servers
        for what in ("certfile", "keyfile"):
            os.replace(paths[what], moved[what])
        for path in moved.values():
            shutil.chown(path, self.user.name)
        return moved


c.JupyterHub.spawner_class = CertifiedSpawner
c.Spawner.default_url = "/lab"
c.Spawner.env_keep = ["LANG", "LC_ALL"]
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120


def choose_role(spawner):
    """Start the instructor's JupyterLab in the course, and a student's in the folder of their labs."""
    is_instructor = spawner.user.name == HUB["instructor"]
    role, folder = ("instructor", HUB["course"]) if is_instructor else ("student", "labs")
    environment = Path(folder, ".venv") if is_instructor else HERE / "env"
    # `adduser` closes new homes; `useradd` may leave them open
    line = 'chmod go-rwx "$HOME" && mkdir -p "$0" && cd "$0" && exec "$@"'
    # -P: nothing in the folder stands in for a module of Python
    server = [f"{environment}/bin/python", "-P", "-m", "jupyterhub.singleuser"]
    spawner.cmd = ["/bin/sh", "-c", line, folder, *server]
    spawner.environment = {
        "PATH": f"{environment}/bin:/usr/local/bin:/usr/bin:/bin",
        "JUPYTER_CONFIG_PATH": f"{HERE}/jupyter/{role}:{HERE}/jupyter",
    }


c.Spawner.pre_spawn_hook = choose_role

if (HERE / "local_config.py").exists():
    load_subconfig(str(HERE / "local_config.py"))  # noqa: F821 (JupyterHub defines it)
