"""A class on a cluster: the files of `deploy/kubernetes`, and a lab that goes round with ngshare as the exchange.

There is no cluster here. The settings are checked with the chart's schema, KubeSpawner and the schemas of Kubernetes.
The JupyterHub of the chart, ngshare, and the servers of an instructor and two students run on this machine, as in their
pods.
"""

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

import jsonschema
import nbformat
import pytest
import yaml
from nbgrader.api import Gradebook

from course import Lab, make_course
from coursegrader.exchange import LeftOut
from coursegrader.grade import grade_class
from coursegrader.labs import nbgrader_config
from coursegrader.ngshare import write_notebooks
from paths import ROOT
from servers import free_ports

LAB = "lab-01-toy-regression"
COURSE = "mlcourse"
FILES = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "book" / "on-a-jupyterhub.md").read_text("utf-8")
DOCKERFILE = (FILES / "Dockerfile").read_text("utf-8").replace("\\\n", "")
VALUES = yaml.safe_load((FILES / "values.yaml").read_text("utf-8"))
SERVICES = list(yaml.safe_load_all((FILES / "services.yaml").read_text("utf-8")))
SCHEMA = yaml.safe_load((ROOT / "tests" / "chart.yml").read_text("utf-8"))
JUPYTERHUB = re.search(r"ARG JUPYTERHUB=(\S+)", DOCKERFILE)[1]
KUBERNETES = "1.35"
OTHERS = (
    *(f"jupyterhub=={JUPYTERHUB}", "jupyterhub-kubespawner>=7.1,<8"),
    *("kubernetes-validate>=1.37", "oauthenticator>=17.4,<18"),
)
# Prints the name that the hub gives to each person of whom the university's log-in tells a name
LOG_IN = """
import asyncio, sys
import yaml
from oauthenticator.generic import GenericOAuthenticator
from traitlets.config import Config

hub, c = yaml.safe_load(open(sys.argv[1]))["hub"], Config()
exec(hub["extraConfig"]["names"])

class Told(GenericOAuthenticator):
    async def authenticate(self, handler, data=None, **_):
        state = self.build_auth_state_dict({"access_token": "told"}, {self.username_claim: data})
        return {"name": self.normalize_username(data), "admin": None, "auth_state": state}

async def main():
    settings = hub["config"]["GenericOAuthenticator"]
    told = Told(config=c, username_claim=settings["username_claim"], allow_all=settings["allow_all"])
    for name in sys.argv[2:]:
        model = await told.get_authenticated_user(None, name)
        print(name, model and model["name"])

asyncio.run(main())
"""
HUB = """
c = get_config()
c.JupyterHub.bind_url, c.ConfigurableHTTPProxy.api_url, c.JupyterHub.hub_bind_url = {urls!r}
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{"ivy", "ada", "bob", "mal", "ada."}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {people!r} + "/{{username}}"
# Each server writes down its environment, as a terminal in it would have it
remember = 'env --null > env.new && mv env.new env && exec "$0" "$@"'
c.Spawner.cmd = ["sh", "-c", remember, {python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.default_url = "/lab"
c.Spawner.environment = {environment!r}
c.Spawner.http_timeout = c.Spawner.start_timeout = 180
c.JupyterHub.services = [{{"name": "test", "api_token": {token!r}}}]
scopes = ["admin:users", "admin:servers", "tokens"]
c.JupyterHub.load_roles = [{{"name": "test", "scopes": scopes, "services": ["test"]}}]
"""


def copies():
    """Return the files and folders of the course that each image copies."""
    stages = re.split(r"^FROM .+ AS (\w+)$", DOCKERFILE, flags=re.M)
    return {
        name: [word for line in re.findall(r"^COPY (.+)$", text, re.M) for word in line.split()[:-1]]
        for name, text in zip(stages[1::2], stages[2::2], strict=True)
    }


def deployment(name):
    """Return the container of a deployment."""
    [found] = [one for one in SERVICES if one["kind"] == "Deployment" and one["metadata"]["name"] == name]
    [container] = found["spec"]["template"]["spec"]["containers"]
    return container


def policy(name):
    [found] = [one for one in SERVICES if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == name]
    return found["spec"]


OVERRIDE = VALUES["hub"]["config"]["KubeSpawner"]["group_overrides"]["instructors"]["spawner_override"]


def test_of_whoever_hands_in_more_than_1000_files_none_is_written(tmp_path):
    with pytest.raises(LeftOut, match="there are more than 1000 files"):
        write_notebooks([{"path": f"{number}.ipynb", "content": ""} for number in range(1001)], tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_chart_accepts_the_values():
    jsonschema.validate(VALUES, SCHEMA)


@pytest.mark.parametrize(
    "path", ["singleuser.memory.maximum", "singleuser.mem_limit", "hub.KubeSpawner", "cull.after", "proxy.hosts"]
)
def test_a_value_that_the_chart_does_not_know_is_noticed(path):
    values = copy.deepcopy(VALUES)
    *folders, name = path.split(".")
    place = values
    for folder in folders:
        place = place[folder]
    place[name] = 1
    with pytest.raises(jsonschema.ValidationError, match=name):
        jsonschema.validate(values, SCHEMA)


def test_what_the_images_copy_is_there_and_holds_no_solution():
    copied = copies()
    assert set(copied) == {"student", "instructor", "ngshare"}
    published = "_build/students"  # what `mlcourse publish` writes
    assert published in copied["student"]
    for source in {word for words in copied.values() for word in words} - {published}:
        assert (ROOT / source).exists(), source
    assert not {"coursegrader", "coursebook"} & set(copied["student"])
    private = ("solutions", "source", "tests", "labs", "gradebook.db", "secret.json", ".")
    assert not set(private) & {word.rstrip("/") for words in copied.values() for word in words}


def test_the_images_and_names_are_the_same_in_all_files():
    image = VALUES["singleuser"]["image"]
    instructor = OVERRIDE["image"]
    assert deployment("grading-scheduler")["image"] == deployment("grading-worker")["image"] == instructor
    named = {f"{image['name']}:{image['tag']}", instructor, deployment("ngshare")["image"]}
    assert named == set(re.findall(r"--tag (\S+)", DOCKERFILE))
    assert f"(JupyterHub {JUPYTERHUB})" in (FILES / "values.yaml").read_text("utf-8")
    found = [one for one in SERVICES if one["kind"] == "Service"]
    services = {one["metadata"]["name"]: one["spec"]["ports"][0]["port"] for one in found}
    host, port = re.search(r"http://(\w+):(\d+)/", (FILES / "nbgrader_config.py").read_text("utf-8")).groups()
    assert services[host] == int(port) == VALUES["singleuser"]["networkPolicy"]["egress"][0]["ports"][0]["port"]
    assert f"tcp://grading:{services['grading']}" in deployment("grading-worker")["command"]
    assert f"--scheduler tcp://grading:{services['grading']}" in PAGE
    assert re.search(r"course_id = \"(\w+)\"", (FILES / "nbgrader_config.py").read_text("utf-8"))[1] == COURSE
    assert nbgrader_config().CourseDirectory.course_id == COURSE


def test_each_server_has_a_name_of_its_own_with_a_certificate():
    hub, proxy = VALUES["hub"]["config"], VALUES["proxy"]
    address = hub["JupyterHub"]["subdomain_host"]
    assert hub["GenericOAuthenticator"]["oauth_callback_url"] == f"{address}/hub/oauth_callback"
    assert proxy["chp"]["extraCommandLineFlags"] == ["--host-routing"]
    host = address.removeprefix("https://")
    assert proxy["https"]["hosts"] == [host, f"*.{host}"] and proxy["https"]["type"] == "secret"


def test_students_reach_neither_the_grader_nor_the_gradebook():
    label = OVERRIDE["extra_labels"]
    assert label and "extraLabels" not in VALUES["singleuser"]
    ours = [one["podSelector"]["matchLabels"] for one in policy("grading")["ingress"][0]["from"]]
    assert label in ours and {"component": "singleuser-server"} not in ours
    assert policy("instructor")["podSelector"]["matchLabels"] == label
    students = VALUES["singleuser"]["networkPolicy"]["egress"]
    assert [to["podSelector"]["matchLabels"] for one in students for to in one["to"]] == [{"app": "ngshare"}]


def test_no_password_stands_in_a_file():
    assert set(OVERRIDE["environment"]["GRADEBOOK"]["valueFrom"]) == {"secretKeyRef"}
    assert all(set(one["valueFrom"]) == {"secretKeyRef"} for one in VALUES["hub"]["extraEnv"].values())
    for path in FILES.iterdir():
        for found in re.findall(r"\w+://[^\s:/@]+:[^\s@]+@", path.read_text("utf-8")):
            assert "USER:PASSWORD@" in found, (path.name, found)
        assert not re.search(r"(password|secret): +\S", path.read_text("utf-8"), re.I), path.name


@pytest.mark.nightly
def test_the_workers_grade_with_what_is_in_their_image(bubblewrap, tmp_path):
    (tmp_path / "course").mkdir()
    lab = Lab(make_course(tmp_path / "course", [LAB]), LAB)
    lab.submitted = {name: lab.submitted[name] for name in ("perfect", "half")}
    lab.hand_in()
    image = tmp_path / "image"
    for name in ("mlcourse", "coursegrader", "data"):
        assert name in copies()["instructor"]
        shutil.copytree(ROOT / name, image / name)
    address = f"127.0.0.1:{free_ports(1)}"
    with contextlib.ExitStack() as ended:
        for name in ("grading-scheduler", "grading-worker"):
            words = [word.replace("grading:8786", address) for word in deployment(name)["command"]]
            words = [word if word != "8786" else address.split(":")[1] for word in words]
            start(ended, tmp_path, name, [sys.executable, "-m", *words], {"PYTHONPATH": str(image)})
        for _ in range(600):
            if "Registered to" in (tmp_path / "grading-worker.log").read_text():
                break
            time.sleep(0.1)
        summary = grade_class(LAB, lab.root, scheduler=f"tcp://{address}")
    assert (summary.graded, summary.late, summary.missed) == (2, 0, {})
    assert lab.totals()["perfect"] == sum(lab.points[name] for name in lab.tests) > lab.totals()["half"] > 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The Python with the JupyterHub of the chart, ngshare, KubeSpawner and the schemas of Kubernetes."""
    if sys.platform != "linux":
        pytest.skip("the containers of a cluster run Linux")
    environment = tmp_path_factory.mktemp("cluster")
    install(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    install(python, "-m", "pip", "install", "--no-compile", "--requirement", FILES / "ngshare.txt", *OTHERS)
    return python


def install(*command):
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_nobody_takes_the_name_of_another_by_a_capital_letter(cluster):
    command = [cluster, "-c", LOG_IN, FILES / "values.yaml", "ivy", "Ivy", "IVY", "ada"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["ivy ivy", "Ivy None", "IVY None", "ada ada"], done.stderr


@pytest.mark.nightly
def test_the_servers_become_pods_and_only_an_instructor_s_may_make_a_sandbox(cluster):
    command = [cluster, ROOT / "tests" / "pods.py", KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    instructor, student = (json.loads(done.stdout)[role]["spec"]["containers"][0] for role in ("instructor", "student"))
    assert instructor["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    assert "seccompProfile" not in student["securityContext"]
    assert (instructor["image"], instructor["resources"]["limits"]["cpu"]) == (OVERRIDE["image"], OVERRIDE["cpu_limit"])
    variables = {one["name"]: one for one in instructor["env"]}
    assert variables["GRADEBOOK"]["valueFrom"]["secretKeyRef"] == {"name": "gradebook", "key": "url"}
    assert not {"GRADEBOOK", "PYTHONPATH"} & {one["name"] for one in student["env"]}
    for container in (instructor, deployment("grading-worker")):
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    limits = [OVERRIDE["mem_limit"], deployment("grading-worker")["resources"]["limits"]["memory"]]
    assert [int(re.match(r"\d+", limit)[0]) > 4 * 1.5 for limit in limits] == [True, True]


class Person:
    """A user of the hub: the token and the environment of the user's own server."""

    def __init__(self, name, home, hub):
        self.name, self.home, self.hub, self.environment = name, home, hub, {}

    def start(self, token):
        """Start the server, and wait until it answers."""
        ask(f"{self.hub}/hub/api/users/{self.name}/server", token, {})
        for _ in range(600):
            if ask(f"{self.hub}/hub/api/users/{self.name}", token)["server"] and (self.home / "env").exists():
                break
            time.sleep(0.2)
        lines = (self.home / "env").read_text().rstrip("\0").split("\0")
        self.environment = dict(line.split("=", 1) for line in lines)

    def ask(self, path, body=None):
        """Ask the user's server, as the list of assignments in JupyterLab does."""
        return ask(f"{self.hub}/user/{self.name}/{path}", self.environment["JUPYTERHUB_API_TOKEN"], body)

    def act(self, action):
        answer = self.ask(f"assignments/{action}", {"course_id": COURSE, "assignment_id": LAB})
        assert answer["success"], answer["value"]
        return {one["status"]: one for one in answer["value"]}

    def run(self, module, *words, fails=False):
        """Type a command in a terminal of the user's server, and return what it said."""
        command = [sys.executable, "-m", module, *words]
        options = {"cwd": self.environment["PWD"], "env": self.environment, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr


def ask(url, token, body=None):
    """Return the answer of a server, as JSON; with a body, to a POST."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    answer = urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers)).read()
    return json.loads(answer or "null")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The folder of all people, and the instructor's course there with one lab and the line that the page asks for."""
    people = tmp_path_factory.mktemp("people")
    root = people / "ivy"
    root.mkdir()
    lab = Lab(make_course(root, [LAB]), LAB)
    shutil.copytree(FILES, root / "deploy" / "kubernetes")
    [line] = re.findall(r"^load_subconfig\(.+\)$", PAGE, re.M)
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"\n{line}\n")
    return people, lab


@pytest.fixture(scope="module")
def token():
    """What lets the test ask the hub for anything."""
    return uuid.uuid4().hex


@pytest.fixture(scope="module")
def class_of_three(cluster, course, bubblewrap, token, tmp_path_factory):
    """The instructor and two students, whose servers the hub has started; ngshare runs beside it, as in its pod."""
    if not shutil.which("npm"):
        message = "no npm: on Debian and Ubuntu, type: sudo apt-get install nodejs npm"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    people, _ = course
    state = tmp_path_factory.mktemp("hub")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "deploy" / "jupyterhub" / name, state)
    subprocess.run(["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--silent"], cwd=state, check=True)
    image = state / "image"  # what the Dockerfile installs over the locked packages
    pip = (sys.executable, "-m", "pip", "install", "--no-compile", "--no-deps", "--target", image)
    install(*pip, "--requirement", FILES / "exchange.txt", f"jupyterhub=={JUPYTERHUB}")
    (state / "jupyter").mkdir()
    shutil.copy(FILES / "nbgrader_config.py", state / "jupyter")
    port = free_ports(4)
    urls = [f"http://127.0.0.1:{port + number}" for number in range(4)]
    config = HUB.format(
        urls=urls[:3],
        proxy=str(state / "node_modules" / ".bin" / "configurable-http-proxy"),
        people=str(people),
        python=sys.executable,
        token=token,
        environment={
            "PYTHONPATH": f"{image}:{ROOT}",
            "JUPYTER_CONFIG_PATH": f"{ROOT / 'deploy' / 'jupyterhub' / 'student'}:{state / 'jupyter'}",
            "NGSHARE": f"{urls[3]}/services/ngshare",
            "OMP_NUM_THREADS": "1",
        },
    )
    (state / "config.py").write_text(config)
    own = {one["name"]: one["value"] for one in deployment("ngshare")["env"]}
    own |= {"JUPYTERHUB_API_URL": f"{urls[2]}/hub/api", "JUPYTERHUB_SERVICE_URL": urls[3]}
    arguments = [word.replace("/srv/ngshare", str(state)) for word in deployment("ngshare")["args"]]
    with contextlib.ExitStack() as ended:
        start(ended, state, "ngshare", [cluster, "-m", "ngshare", *arguments], own)
        start(ended, state, "hub", [cluster, "-m", "jupyterhub", "--config", state / "config.py"], {})
        answers(f"{urls[3]}/healthz", state / "ngshare.log")
        answers(f"{urls[0]}/hub/api", state / "hub.log")
        class_ = [Person(name, people / name, urls[0]) for name in ("ivy", "ada", "bob")]
        for person in class_:
            with contextlib.suppress(urllib.error.HTTPError):
                ask(f"{urls[0]}/hub/api/users/{person.name}", token, {})  # it may be there already
            person.start(token)
        yield class_


def start(ended, state, name, command, environment):
    """Start a program in a process group of its own, which ends with the test."""
    with (state / f"{name}.log").open("w") as log:
        options = {"stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen(command, cwd=state, env={**os.environ, **environment}, **options)
    ended.callback(process.wait)
    ended.callback(os.killpg, process.pid, signal.SIGTERM)


def answers(url, log):
    for _ in range(600):
        try:
            return urllib.request.urlopen(url).close()
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(log.read_text())


def hand_in(student, paths, token, ivy):
    """Hand in as somebody who talks to ngshare without nbgrader, under paths that nbgrader would not make."""
    own = ask(f"{ivy.hub}/hub/api/users/{student}/tokens", token, {})["token"]
    files = json.dumps([{"path": path, "content": "e30="} for path in paths])
    data = urllib.parse.urlencode({"user": student, "files": files}).encode()
    url, headers = f"{ivy.environment['NGSHARE']}/submission/{COURSE}/{LAB}", {"Authorization": f"token {own}"}
    assert json.load(urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers)))["success"]


@pytest.mark.nightly
def test_a_lab_goes_from_its_release_to_the_feedback_by_ngshare(class_of_three, course, token):
    """Nobody who hands in what cannot be written stops the others."""
    _, lab = course
    ivy, ada, bob = class_of_three
    gradebook = f"sqlite:///{(ivy.home / 'gradebook.db').rename(ivy.home / 'elsewhere.db')}"
    ivy.environment["GRADEBOOK"] = gradebook  # as the secret of the cluster does, with the address of PostgreSQL
    ivy.run("ngshare_exchange.course_management", "create_course", COURSE, "ivy")
    (ivy.home / "class.csv").write_text("student_id,first_name,last_name,email\nada,,,\nbob,,,\nmal,,,\nada.,,,\n")
    ivy.run("ngshare_exchange.course_management", "add_students", COURSE, "class.csv", "--no-gb")
    assert "Successfully released" in ivy.run("nbgrader", "release_assignment", LAB)
    for student, answer in ((ada, "perfect"), (bob, "half")):
        listed = student.ask(f"assignments?course_id={COURSE}")
        assert [one["assignment_id"] for one in listed["value"]] == [LAB]
        student.act("fetch")
        [notebook] = student.home.glob(f"**/{LAB}.ipynb")
        assert json.loads(notebook.read_text())["cells"] == json.loads(nbformat.writes(lab.released))["cells"]
        nbformat.write(lab.submitted[answer], notebook)
        assert student.act("submit")["submitted"]
    hand_in("mal", ["timestamp.txt/x", "a", "a/b", f"{'n' * 300}.ipynb"], token, ivy)
    said = ivy.run("nbgrader", "collect", LAB)
    assert "Collected 2 of 3 submissions" in said and "mal: Not collected: there is no notebook" in said
    assert "Graded 2 submissions" in ivy.run("mlcourse.cli", "grade", LAB)
    with Gradebook(gradebook) as opened:
        points = {one.student_id: one.score for one in opened.find_assignment(LAB).submissions}
    assert points["ada"] == sum(lab.points[name] for name in lab.tests) > points["bob"] > 0
    ivy.run("mlcourse.cli", "feedback", LAB)
    assert "Released the feedback of 3 students" in ivy.run("nbgrader", "release_feedback", LAB)
    for student in (ada, bob):
        [submission] = student.act("fetch_feedback")["submitted"]["submissions"]
        assert submission["has_local_feedback"]
        [page] = student.home.glob(f"**/feedback/**/{LAB}.html")
        assert page.read_bytes() == lab.feedback(student.name).read_bytes()
    hand_in("ada.", [f"{LAB}.ipynb"], token, ivy)
    said = ivy.run("nbgrader", "release_feedback", LAB)
    assert "Released the feedback of 3 students" in said and "not released" not in said  # the folder has ada's name


@pytest.mark.nightly
def test_a_student_neither_collects_nor_reads_the_work_of_another(class_of_three):
    _, ada, _ = class_of_three
    for words in (["nbgrader", "collect", LAB], ["nbgrader", "release_assignment", LAB]):
        ada.run(*words, fails=True)
    for path in (f"submissions/{COURSE}/{LAB}", f"submission/{COURSE}/{LAB}/bob", f"feedback/{COURSE}/{LAB}/bob"):
        url = f"{ada.environment['NGSHARE']}/{path}"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(url, ada.environment["JUPYTERHUB_API_TOKEN"])
        with pytest.raises(urllib.error.HTTPError):
            ask(url, "no token")
