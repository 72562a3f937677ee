// SPDX-License-Identifier: Apache-2.0
//
// How the adapter finds a user's handler: the file of a module within the code,
// its exports, and the place of what keeps them from being loaded. What it gives
// to `function.js`, which comes after it in the same scope, is `find` and `usersPart`.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

const NAMES_SHOWN_MAX = 8;
const STACK_LINES_MAX = 40;
const FILES_SEARCHED_MAX = 200;
const EXTENSIONS = [".js", ".mjs", ".cjs"];
// This file, and what a function is for the template: its settings.
const OWN_FILES = [/\(?([^()\s]+):\d+:\d+\)?$/.exec(new Error("here").stack.split("\n")[1])?.[1], "function.js"];

// Where the code is.
let appRoot = "/app";

/** The exception without the lines of its stack that are not the user's. */
function usersPart(error) {
  if (!(error instanceof Error) || typeof error.stack !== "string") return error;
  // Preceded by a space or bracket: a file of the user's may have this one's name, in another folder.
  const isOwn = (line) => OWN_FILES.some((file) => line.includes(` ${file}:`) || line.includes(`(${file}:`));
  const isForeign = (line) => /^\s+at /.test(line) && (line.includes("node:internal") || isOwn(line));
  const lines = error.stack.split("\n").filter((line) => !isForeign(line));
  try {
    error.stack = lines.slice(0, STACK_LINES_MAX).join("\n");
  } catch {
    // A frozen error keeps the stack that it has.
  }
  return error;
}

/** Where a syntax error of an ES module is, which the module does not tell: its file is compiled again, as a script. */
function placeIn(file, message) {
  const same = (text) => text.replace(/[^\n]/g, " ");
  const source = fs
    .readFileSync(file, "utf8")
    .replace(/^[ \t]*import\b[^'"();]*['"][^'"\n]*['"]/gm, same)
    .replace(/^([ \t]*)export[ \t]+default\b/gm, (found) => "void".padStart(found.length))
    .replace(/^[ \t]*export\b/gm, same);
  const opening = "(async () => {";
  try {
    new (require("node:vm").Script)(`${opening}${source}\n})`, { filename: file, columnOffset: -opening.length });
  } catch (found) {
    if (found instanceof SyntaxError && found.message === message) return found.stack.split("\n").slice(0, 3);
  }
  return undefined;
}

/** A syntax error with its place, looked for in the module and in the others of the code. */
function placed(error, file) {
  if (!(error instanceof SyntaxError) || /^\S*:\d+$/m.test(String(error.stack).split("\n", 1)[0])) return error;
  const isSource = (name) => /\.m?js$/.test(name) && !name.includes("node_modules");
  const others = fs.readdirSync(appRoot, { recursive: true }).filter(isSource).slice(0, FILES_SEARCHED_MAX);
  for (const one of [file, ...others.map((name) => path.join(appRoot, name))]) {
    const place = placeIn(one, error.message);
    if (place) {
      error.stack = [...place, "", String(error.stack)].join("\n");
      break;
    }
  }
  return error;
}

/** The file of a module, within the code. */
function fileOf(name) {
  const base = path.join(appRoot, name);
  const candidates = [...EXTENSIONS.map((end) => base + end), ...EXTENSIONS.map((end) => path.join(base, `index${end}`))];
  const found = candidates.find((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile());
  if (found) return found;
  const there = fs.readdirSync(appRoot).filter((entry) => !entry.startsWith(".")).sort();
  const more = there.length > NAMES_SHOWN_MAX ? ", …" : "";
  const listed = there.slice(0, NAMES_SHOWN_MAX).join(", ") + more;
  const typed = there.find((entry) => /\.[cm]?ts$/.test(entry));
  const advice = typed === undefined ? "" : `; TypeScript is compiled before it is deployed, by a "build" in sinew.toml: ` +
    `build = { command = "npx esbuild ${typed} --bundle --platform=node --outdir=dist", output = "dist" }`;
  throw new Error(`no module '${name}': the code has no ${name}.js, .mjs or .cjs; it has: ${listed || "nothing"}${advice}`);
}

/** Whether a file is an ES module: by its name, or by the package.json above it. */
function isEsModule(file) {
  if (!file.endsWith(".js")) return file.endsWith(".mjs");
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    const manifest = path.join(folder, "package.json");
    if (fs.existsSync(manifest)) return JSON.parse(fs.readFileSync(manifest, "utf8")).type === "module";
    if (folder === path.resolve(appRoot) || folder === path.dirname(folder)) return false;
  }
}

/** The handler among a module's exports. */
function member(exported, moduleName, attribute) {
  const fallback = exported.default ?? exported;
  if (exported[attribute] !== undefined) return exported[attribute];
  if (typeof fallback === "object" && fallback?.[attribute] !== undefined) return fallback[attribute];
  if (typeof fallback === "function" || typeof fallback?.fetch === "function") return fallback;
  const own = Object.keys(exported).slice(0, NAMES_SHOWN_MAX).join(", ");
  throw new Error(`the module ${moduleName} exports no '${attribute}'; it exports: ${own || "nothing"}`);
}

function prepare(settings) {
  appRoot = settings["app-root"] ?? "/app";
  const layersRoot = settings["layers-root"] ?? "/layers";
  for (const [key, value] of Object.entries(settings)) {
    if (key.startsWith("env.")) process.env[key.slice(4)] = value;
  }
  process.chdir(appRoot);
  const layers = Array.from({ length: Number(settings.layers ?? "0") }, (_, at) => path.join(layersRoot, String(at)));
  if (layers.length > 0) {
    // Read by CommonJS only; ES modules find nothing but what lies above them.
    process.env.NODE_PATH = layers.flatMap((layer) => [layer, path.join(layer, "node_modules")]).join(path.delimiter);
    require("node:module")._initPaths();
  }
}

/** The handler that the settings name, and the name. */
async function find(settings, load) {
  prepare(settings);
  return findHandler(settings.handler ?? "index.handler", load);
}

/** A handler of the code, and its name; `load` loads ES modules, which a template's own text cannot. */
async function findHandler(given, load) {
  const name = given.replace(/^\.\//, "");
  const dot = name.lastIndexOf(".");
  if (dot < 1 || dot === name.length - 1) {
    throw new Error(`the handler '${name}' is not of the form module.name, like index.handler`);
  }
  const [moduleName, attribute] = [name.slice(0, dot), name.slice(dot + 1)];
  const file = fileOf(moduleName);
  const exported = isEsModule(file)
    ? await load(require("node:url").pathToFileURL(file).href).catch((error) => Promise.reject(placed(error, file)))
    : require("node:module").createRequire(file)(file);
  return { handler: member(exported ?? {}, moduleName, attribute), name };
}
