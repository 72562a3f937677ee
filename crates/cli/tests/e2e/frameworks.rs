// SPDX-License-Identifier: Apache-2.0
//! Applications of frameworks as handlers, as they are written for any server: FastAPI
//! (Starlette), Flask, Django, and Express. Where no registry can be reached, these tests skip.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::functions::is_root;
use super::requirements::reaches;
use super::{Node, home, http_with};

const SHOP_PY: &str = r#"
import asyncio
from contextlib import asynccontextmanager

from fastapi import BackgroundTasks, FastAPI, File, HTTPException, Request, UploadFile
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

@asynccontextmanager
async def lifespan(app):
    app.state.orders, app.state.gates = [], {}
    yield {"greeting": "hello"}

app = FastAPI(lifespan=lifespan)
app.add_middleware(GZipMiddleware, minimum_size=2000)

@app.middleware("http")
async def stamp(request: Request, call_next):
    response = await call_next(request)
    response.headers["x-stamp"] = request.method
    return response

class OutOfStock(Exception):
    pass

@app.exception_handler(OutOfStock)
async def out_of_stock(request, error):
    return JSONResponse({"missing": str(error)}, status_code=409)

class Order(BaseModel):
    name: str
    count: int = 1

def gate(name):
    return app.state.gates.setdefault(name, asyncio.Event())

@app.get("/items/{number}")
async def item(number: int, request: Request, q: str = "none"):
    return {"number": number, "q": q, "greeting": request.state.greeting, "url": str(request.url_for("orders"))}

async def bill(name):
    import sinew
    await sinew.call_async("gate", {"name": name})
    app.state.orders.append(name)
    print("billed", name)

@app.post("/orders", status_code=201)
def order(order: Order, tasks: BackgroundTasks):
    if order.count > 9:
        raise OutOfStock(order.name)
    tasks.add_task(bill, order.name)
    return order

@app.get("/orders/")
async def orders():
    return app.state.orders

@app.post("/upload")
async def upload(file: UploadFile = File()):
    return {"name": file.filename, "size": len(await file.read())}

@app.get("/stream")
async def stream():
    async def pieces():
        import sinew
        yield "one"
        await sinew.call_async("gate", {"name": "stream"})
        yield "two"
    return StreamingResponse(pieces(), media_type="text/plain")

@app.get("/missing")
async def missing():
    raise HTTPException(404, "none such", headers={"x-why": "test"})

@app.get("/broken")
async def broken():
    raise RuntimeError("half way")

@app.get("/long")
async def long():
    return "x" * 10000
"#;

const GATE_JS: &str = r#"
const gates = {};
exports.handler = async ({ name, open, close }) => {
  if (close) return void delete gates[name];
  gates[name] ??= (() => { let open; const opened = new Promise((resolve) => { open = resolve; }); return { open, opened }; })();
  if (open) gates[name].open();
  await gates[name].opened;
  return name;
};
"#;

const GATE: &str = "[functions.gate]\nruntime = \"node\"\nhandler = \"gate.handler\"\nconcurrency = 1\n\
                    requests-per-instance = 64\n";

pub(super) fn written(folder: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
}

/// What comes in chunks.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&rest[..size]);
        chunks = &rest[size + 2..];
    }
    body
}

impl Node {
    /// Status, head and body of what a function answers.
    pub(super) fn asks(&self, request: &str, headers: &str, body: &[u8]) -> (u16, String, String) {
        let answer = http_with(&self.address, request, headers, body);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { joined(body) } else { body.to_owned() };
        (head[9..12].parse().unwrap(), head, body)
    }

    fn gets(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.asks(&format!("GET /function/{path}"), "", b"");
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    fn opens(&self, gate: &str) {
        assert_eq!(self.call("gate", &json!({"name": gate, "open": true})).0, 200);
    }

    fn logs_of(&self, name: &str, wanted: &str) {
        let begun = Instant::now();
        while !self.ok(&["logs", name]).contains(wanted) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{wanted} is in no log");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A piece of an answer comes before the gate is opened, the rest after.
    fn streams(&self, path: &str) {
        let url = format!("http://{}/function/{path}", self.address);
        let mut command = Command::new("curl");
        let mut client =
            command.args(["-sN", "--max-time", "60", &url]).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = client.stdout.take().unwrap();
        let mut first = [0; 3];
        out.read_exact(&mut first).unwrap();
        self.opens("stream");
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(client.wait().unwrap().success());
        assert_eq!((&first, rest.as_str()), (b"one", "two"));
    }
}

#[test]
fn an_application_of_fastapi_is_served_as_by_its_own_server() {
    serves_fastapi("");
}

#[test]
fn an_application_of_fastapi_is_served_so_where_it_serves_several_at_once() {
    serves_fastapi("requests-per-instance = 20\n");
}

fn serves_fastapi(settings: &str) {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "fastapi"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source-shop");
    // One instance: what it keeps is seen by the next request.
    let manifest = format!(
        "[functions.shop]\nruntime = \"python\"\nhandler = \"shop.app\"\nmemory = \"512MiB\"\nconcurrency = 1\n{settings}\n{GATE}"
    );
    let packages = "fastapi==0.165.0\nstarlette==1.10.0\npython-multipart==0.0.34\n";
    let files = [
        ("sinew.toml", manifest.as_str()),
        ("requirements.txt", packages),
        ("shop.py", SHOP_PY),
        ("gate.js", GATE_JS),
    ];
    written(&folder, &files);
    node.install(&folder).unwrap();
    let url = "http://localhost/function/shop/orders/";
    let told = json!({"number": 7, "q": "a b", "greeting": "hello", "url": url});
    assert_eq!(node.gets("shop/items/7?q=a%20b"), (200, told));
    let (status, wrong) = node.gets("shop/items/seven");
    assert_eq!((status, &wrong["detail"][0]["loc"]), (422, &json!(["path", "number"])));
    // Redirected to where it is, and described there.
    let (status, head, _) = node.asks("GET /function/shop/items/7/", "", b"");
    assert_eq!(status, 307, "{head}");
    assert!(head.contains("location: http://localhost/function/shop/items/7"), "{head}");
    let (status, _, page) = node.asks("GET /function/shop/docs", "", b"");
    assert!(status == 200 && page.contains("/function/shop/openapi.json"), "{page}");
    assert_eq!(
        node.gets("shop/openapi.json").1["paths"]["/upload"]["post"]["operationId"],
        "upload_upload_post"
    );
    // The answer is there before its background task has ended.
    let json = "Content-Type: application/json\r\n";
    let (status, head, body) = node.asks("POST /function/shop/orders", json, b"{\"name\": \"a\"}");
    assert!(status == 201 && head.contains("x-stamp: post"), "{head}");
    // It came in one piece, whose length stands before it.
    assert!(body.contains("{\"name\":\"a\",\"count\":1}"), "{body}");
    node.opens("a");
    node.logs_of("shop", "billed a");
    assert_eq!(node.gets("shop/orders/"), (200, json!(["a"])));
    // Exceptions: the framework's, the application's, and nobody's.
    let (status, head, body) = node.asks("GET /function/shop/missing", "", b"");
    assert!(status == 404 && head.contains("x-why: test") && body.contains("none such"), "{head} {body}");
    let (status, _, body) =
        node.asks("POST /function/shop/orders", json, b"{\"name\": \"many\", \"count\": 10}");
    assert_eq!((status, body.as_str()), (409, "{\"missing\":\"many\"}"));
    assert_eq!(node.gets("shop/broken"), (500, json!("Internal Server Error")));
    node.logs_of("shop", "RuntimeError: half way");
    // Forms, what middleware does to bodies, and what comes in pieces.
    let form =
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.txt\"\r\n\r\nabc\r\n--x--\r\n";
    let multipart = "Content-Type: multipart/form-data; boundary=x\r\n";
    let (status, _, body) = node.asks("POST /function/shop/upload", multipart, form.as_bytes());
    assert_eq!((status, body.as_str()), (200, "{\"name\":\"f.txt\",\"size\":3}"));
    let (status, head, _) = node.asks("GET /function/shop/long", "Accept-Encoding: gzip\r\n", b"");
    assert!(status == 200 && head.contains("content-encoding: gzip"), "{head}");
    node.streams("shop/stream");
}

const FLASK_PY: &str = r#"
import sinew
from flask import Flask, Response, jsonify, make_response, redirect, request, session, url_for

app = Flask(__name__)
app.secret_key = "x"

@app.get("/items/<int:number>")
def item(number):
    return {"number": number, "q": request.args["q"], "url": url_for("item", number=1, _external=True), "root": request.script_root}

@app.post("/form")
def form():
    return jsonify(name=request.form["name"], file=request.files["file"].read().decode(), length=request.content_length)

@app.post("/json")
def json_body():
    return request.get_json(), 201, {"x-a": "b"}

@app.get("/cookies")
def cookies():
    session["seen"] = session.get("seen", 0) + 1
    response = make_response(str(session["seen"]))
    response.set_cookie("a", "1")
    return response

@app.get("/stream")
def stream():
    def pieces():
        yield "one"
        sinew.call("gate", {"name": "stream"})
        yield "two"
    return Response(pieces(), mimetype="text/plain")

@app.get("/broken")
def broken():
    raise RuntimeError("half way")

@app.get("/away")
def away():
    return redirect(url_for("item", number=2))
"#;

/// All of a project in one file.
const DJANGO_PY: &str = r#"
import os
import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path, reverse

settings.configure(
    DEBUG=False, SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "/tmp/db"}},
    LOGGING={"version": 1, "disable_existing_loggers": False, "handlers": {"all": {"class": "logging.StreamHandler"}}, "root": {"handlers": ["all"]}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"], USE_TZ=True,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.gzip.GZipMiddleware"],
)

def item(request, number):
    return JsonResponse({"number": number, "q": request.GET["q"], "url": request.build_absolute_uri(reverse("item", args=[1]))})

def people(request):
    from django.contrib.auth.models import User
    from django.core.management import call_command
    call_command("migrate", run_syncdb=True, verbosity=0)
    User.objects.create_user(request.POST["name"])
    return HttpResponse(", ".join(User.objects.values_list("username", flat=True)))

def stream(request):
    def pieces():
        import sinew
        yield "one"
        sinew.call("gate", {"name": "stream"})
        yield "two"
    return StreamingHttpResponse(pieces())

def broken(request):
    raise RuntimeError("half way")

urlpatterns = [path("items/<int:number>", item, name="item"), path("people", people), path("stream", stream), path("broken", broken)]
wsgi = get_wsgi_application()
asgi = get_asgi_application()
"#;

#[test]
fn applications_of_flask_and_django_are_served_as_by_their_own_servers() {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "flask"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source-web");
    let function = |name: &str, handler: &str, settings: &str| {
        format!(
            "[functions.{name}]\nruntime = \"python\"\nhandler = \"{handler}\"\nmemory = \"512MiB\"\nconcurrency = 1\n{settings}\n"
        )
    };
    let several = "requests-per-instance = 8\n";
    let manifest = [
        function("flask", "shop.app", ""),
        function("flask-several", "shop.app", several),
        function("django", "site_one.wsgi", ""),
        function("django-several", "site_one.wsgi", several),
        function("django-asgi", "site_one.asgi", several),
        GATE.to_owned(),
    ];
    let files = [
        ("sinew.toml", manifest.concat()),
        ("requirements.txt", "flask==3.1.3\ndjango==5.2.19\n".to_owned()),
        ("shop.py", FLASK_PY.to_owned()),
        ("site_one.py", DJANGO_PY.to_owned()),
        ("gate.js", GATE_JS.to_owned()),
    ];
    written(&folder, &files.each_ref().map(|(name, text)| (*name, text.as_str())));
    node.install(&folder).unwrap();
    for name in ["flask", "flask-several"] {
        node.serves_flask(name);
    }
    for name in ["django", "django-several", "django-asgi"] {
        node.serves_django(name);
    }
}

/// What a browser sends of a form with a file.
const FORM: (&str, &[u8]) = (
    "Content-Type: multipart/form-data; boundary=x\r\n",
    b"--x\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nada\r\n\
      --x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f.txt\"\r\n\r\nabc\r\n--x--\r\n",
);

impl Node {
    fn serves_flask(&self, name: &str) {
        let root = format!("/function/{name}");
        let url = format!("http://localhost{root}/items/1");
        let told = json!({"number": 7, "q": "a b", "url": url, "root": root});
        assert_eq!(self.gets(&format!("{name}/items/7?q=a%20b")), (200, told));
        let (status, _, body) = self.asks(&format!("POST {root}/form"), FORM.0, FORM.1);
        let told = json!({"name": "ada", "file": "abc", "length": FORM.1.len()});
        assert_eq!((status, serde_json::from_str(&body).unwrap_or(json!(body))), (200, told));
        let json = "Content-Type: application/json\r\n";
        let (status, head, body) = self.asks(&format!("POST {root}/json"), json, b"{\"a\": 1}");
        assert!(status == 201 && head.contains("x-a: b") && body == "{\"a\":1}\n", "{head} {body:?}");
        let (status, head, body) = self.asks(&format!("GET {root}/cookies"), "", b"");
        assert!(status == 200 && body == "1" && head.matches("set-cookie").count() == 2, "{head} {body}");
        let session = head.lines().find_map(|line| line.strip_prefix("set-cookie: session=")).map(|_| ());
        assert!(session.is_some(), "{head}");
        let (status, head, _) = self.asks(&format!("GET {root}/away"), "", b"");
        assert!(status == 302 && head.contains(&format!("location: {root}/items/2")), "{head}");
        assert_eq!(self.gets(&format!("{name}/items/seven")).0, 404);
        assert_eq!(self.gets(&format!("{name}/broken")).0, 500);
        self.logs_of(name, "RuntimeError: half way");
        self.call("gate", &json!({"name": "stream", "close": true}));
        self.streams(&format!("{name}/stream"));
    }

    fn serves_django(&self, name: &str) {
        let root = format!("/function/{name}");
        let told = json!({"number": 7, "q": "a b", "url": format!("http://localhost{root}/items/1")});
        assert_eq!(self.gets(&format!("{name}/items/7?q=a%20b")), (200, told));
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        let (status, _, body) = self.asks(&format!("POST {root}/people"), form, b"name=ada");
        assert_eq!((status, body.as_str()), (200, "ada"));
        assert_eq!(self.gets(&format!("{name}/nowhere")).0, 404);
        assert_eq!(self.gets(&format!("{name}/broken")).0, 500);
        self.logs_of(name, "RuntimeError: half way");
        self.call("gate", &json!({"name": "stream", "close": true}));
        // It has a generator that is not asynchronous run to its end before anything is sent, which it warns of.
        if name != "django-asgi" {
            self.streams(&format!("{name}/stream"));
        }
    }
}

const SHOP_JS: &str = r#"
const express = require("express");
const app = express();
app.use(express.json());
app.use((req, res, next) => { res.set("x-stamp", req.method); next(); });
const orders = express.Router();
orders.post("/", (req, res) => res.status(201).json({ ...req.body, base: req.baseUrl }));
orders.get("/:number", (req, res, next) => {
  if (req.params.number === "0") return next(new RangeError("no such order"));
  res.json({ number: req.params.number, q: req.query.q, secure: req.secure, host: req.hostname });
});
app.use("/orders", orders);
app.use("/files", express.static("files"));
app.get("/async", async () => { throw new Error("half way"); });
app.get("/stream", async (req, res) => {
  res.type("text");
  res.write("one");
  await sinew.call("gate", { name: "stream" });
  res.end("two");
});
app.get("/cookie", (req, res) => res.cookie("a", "1", { httpOnly: true }).cookie("b", "2").redirect(303, "/elsewhere"));
app.use((error, req, res, next) => {
  if (res.headersSent || error.message === "half way") return next(error);
  res.status(418).send(error.message);
});
exports.app = app;
"#;

#[test]
fn an_application_of_express_is_served_as_by_its_own_server() {
    if !is_root() || !reaches("npm", &["view", "express@5.3.0", "version"]) {
        return;
    }
    let home = home();
    let node = Node::start(home.path());
    let folder = home.path().join("source-shop");
    let manifest = format!("[functions.shop]\nruntime = \"node\"\nhandler = \"index.app\"\n\n{GATE}");
    let package = "{\"name\": \"shop\", \"version\": \"1.0.0\", \"dependencies\": {\"express\": \"5.3.0\"}}";
    let files = [
        ("sinew.toml", manifest.as_str()),
        ("package.json", package),
        ("index.js", SHOP_JS),
        ("gate.js", GATE_JS),
    ];
    written(&folder, &files);
    written(&folder.join("files"), &[("a.txt", "a file\n"), ("page.html", "<p>")]);
    let mut lock = Command::new("npm");
    let locked =
        lock.args(["install", "--package-lock-only", "--silent"]).current_dir(&folder).output().unwrap();
    assert!(locked.status.success(), "{locked:?}");
    node.install(&folder).unwrap();
    let json = "Content-Type: application/json\r\n";
    let (status, head, body) = node.asks("POST /function/shop/orders", json, b"{\"name\": \"a\"}");
    assert!(status == 201 && head.contains("x-stamp: post"), "{head}");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(told["name"], "a");
    let told = json!({"number": "7", "q": "a b", "secure": false, "host": "localhost"});
    assert_eq!(node.gets("shop/orders/7?q=a%20b"), (200, told));
    assert_eq!(node.gets("shop/orders/0"), (418, json!("no such order")));
    let (status, _, page) = node.asks("GET /function/shop/nowhere", "", b"");
    assert!(status == 404 && page.contains("Cannot GET"), "{page}");
    let (status, _, page) = node.asks("GET /function/shop/async", "", b"");
    assert!(status == 500, "{page}");
    node.logs_of("shop", "half way");
    let (status, head, body) = node.asks("GET /function/shop/files/a.txt", "", b"");
    assert!(status == 200 && head.contains("content-type: text/plain") && head.contains("etag"), "{head}");
    assert_eq!(body, "a file\n");
    let (status, head, _) = node.asks("GET /function/shop/files/a.txt", "Range: bytes=2-5\r\n", b"");
    assert!(status == 206 && head.contains("content-range: bytes 2-5/7"), "{head}");
    let (status, head, _) = node.asks("GET /function/shop/cookie", "", b"");
    assert!(status == 303 && head.contains("location: /elsewhere"), "{head}");
    assert_eq!(head.matches("set-cookie").count(), 2, "{head}");
    let (status, _, page) = node.asks("POST /function/shop/orders", json, b"{\"name\":");
    assert!(status == 418, "{page}");
    node.streams("shop/stream");
}
