"""A stub of the Hugging Face Hub: repositories in memory, and the endpoints by which `huggingface_hub` uses them."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Hub:
    """Repositories by name; each has commits by id, in order, and each commit files by name."""

    def __init__(self):
        self.repositories, self.tokens, self.requests = {}, {"good"}, []

    def commit(self, repository, files):
        """Add a commit with these files changed; return its id."""
        commits = self.repositories.setdefault(repository, {})
        before = commits[list(commits)[-1]] if commits else {}
        content = {**before, **files}
        name = hashlib.sha1(repr((len(commits), sorted(content.items()))).encode()).hexdigest()
        commits[name] = content
        return name

    def find(self, repository, revision):
        """Return the id and the files of a commit; None where there is none."""
        commits = self.repositories.get(repository)
        if not commits:
            return None
        name = list(commits)[-1] if revision == "main" else revision
        return (name, commits[name]) if name in commits else None


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, content=b"", **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, code):
        self.answer(404, {"error": "not found"}, X_Error_Code=code)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        self.hub.requests.append(("POST", path))
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization", "").removeprefix("Bearer ") not in self.hub.tokens:
            return self.answer(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            data = json.loads(body)
            name = "/".join(filter(None, (data.get("organization"), data["name"])))
            status = 409 if name in self.hub.repositories else 200
            self.hub.repositories.setdefault(name, {})
            return self.answer(status, {"url": f"{self.hub.url}/{name}", "name": name})
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/(.+)", path)
        if found is None:
            return self.missing("EntryNotFound")
        if found[2] == "preupload":
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for one in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": files})
        lines = [json.loads(line) for line in body.splitlines()]
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        name = self.hub.commit(found[1], files)
        return self.answer(200, {"commitUrl": f"{self.hub.url}/{found[1]}/commit/{name}", "commitOid": name})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        about = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/(.+)", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        match = tree or about or file
        if match is None or match[1] not in self.hub.repositories:
            return self.missing("RepoNotFound")
        found = self.hub.find(match[1], match[2] or "main")
        if found is None:
            return self.missing("RevisionNotFound")
        name, files = found
        if tree:
            entries = [
                {"type": "file", "path": one, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for one, content in files.items()
            ]
            return self.answer(200, entries)
        if about:
            siblings = [{"rfilename": one, "size": len(content)} for one, content in files.items()]
            return self.answer(
                200, {"id": match[1], "modelId": match[1], "sha": name, "siblings": siblings, "tags": []}
            )
        if file[3] not in files:
            return self.missing("EntryNotFound")
        content = files[file[3]]
        return self.answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=name)


def start():
    """Return a running stub; `hub.url` is its address, `hub.stop()` ends it."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop():
        server.shutdown()
        server.server_close()

    hub.stop = stop
    return hub
