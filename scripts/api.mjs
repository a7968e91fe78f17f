// Writes docs/api.md from what the client library exports and the doc comments there: node scripts/api.mjs. With --check it writes nothing
// and fails if the page is not what the sources say. Either way it fails for an exported name, or a member of a class, without a comment.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { API, ModifierFlags, SymbolFlags } from "typescript/unstable/sync";
import { SyntaxKind } from "typescript/unstable/ast";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const page = join(root, "docs/api.md");
const modules = [
  ["drumline", "index", "The library itself: in pages, workers and Node. A page of this server imports `drumline`, any other page the server's `/drumline.js`."],
  ["drumline/ui", "ui", "Page pieces: the name prompt, and overlays that say what is wrong with the connection."],
  ["drumline/input", "input", "Keys, pointer, touch sticks and gamepads."],
];

// Declarations have no bodies, no private parts and nothing that is marked as internal, and all types are written out.
mkdirSync(join(root, "web/.build"), { recursive: true });
const dir = mkdtempSync(join(root, "web/.build/api-"));
const faults = [];
let text;
try {
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  execFileSync(process.execPath, [compiler, "-p", join(root, "tsconfig.npm.json"), "--emitDeclarationOnly", "--outDir", dir], { stdio: "inherit" });
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({
    extends: join(root, "tsconfig.json"), compilerOptions: { noEmit: true, paths: {}, types: [] }, include: [], files: modules.map(([, file]) => `${file}.d.ts`),
  }));
  text = write();
} finally {
  rmSync(dir, { recursive: true, force: true });
}
for (const f of faults) console.error(`no doc comment: ${f}`);
if (process.argv.includes("--check")) {
  if (readFileSync(page, "utf8").replaceAll("\r\n", "\n") !== text) {
    console.error("docs/api.md is not what the sources say; make docs writes it anew");
    process.exitCode = 1;
  }
} else {
  writeFileSync(page, text);
}
if (faults.length > 0) process.exitCode = 1;

function write() {
  const api = new API();
  try {
    const snapshot = api.updateSnapshot({ openProjects: [join(dir, "tsconfig.json")] });
    const project = snapshot.getProjects()[0];
    const { checker, program } = project;
    const lines = [
      "# The client's API", "",
      "Made from the doc comments in `web/src` by `make docs`; do not edit. [client.md](client.md) shows how to use it.",
    ];
    for (const [name, file, about] of modules) {
      const module = checker.getSymbolAtLocation(program.getSourceFile(join(dir, `${file}.d.ts`)));
      const all = checker.getExportsOfModule(module).map((e) => ({ name: e.name, symbol: aliased(checker, e) }));
      lines.push("", `## \`${name}\``, "", about, "", all.map((e) => `[\`${e.name}\`](#${e.name.toLowerCase()})`).join(" · "));
      for (const e of all) {
        const node = e.symbol.declarations[0].resolve(project);
        const doc = checker.getDocumentationCommentOfSymbol(e.symbol);
        if (doc === "") faults.push(`${name}: ${e.name}`);
        lines.push("", `### ${e.name}`, "", ...entry(node, `${name}: ${e.name}`, doc, checker));
      }
    }
    return lines.join("\n") + "\n";
  } finally {
    api.close();
  }
}

function aliased(checker, symbol) {
  return symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

// A declaration: its head as code, its comment, and its members one by one.
function entry(node, path, doc, checker) {
  const head = (s) => ["```ts", s, "```", "", ...prose(doc)];
  if (node.kind !== SyntaxKind.InterfaceDeclaration && node.kind !== SyntaxKind.ClassDeclaration) {
    // A variable's statement has the keyword.
    return head(line(node.kind === SyntaxKind.VariableDeclaration ? `const ${node.getText()};` : node.getText()));
  }
  const members = [];
  for (const m of node.members) {
    if (m.modifierFlags & ModifierFlags.Private || m.kind === SyntaxKind.Constructor) continue;
    const symbol = m.name === undefined ? undefined : checker.getSymbolAtLocation(m.name);
    const text = symbol === undefined ? "" : checker.getDocumentationCommentOfSymbol(symbol);
    if (text === "" && node.kind === SyntaxKind.ClassDeclaration) faults.push(`${path}.${m.name?.getText() ?? "?"}`);
    members.push(`- \`${line(m.getText()).replace(/;$/, "").replace(/^get (\w+)\(\): /, "readonly $1: ")}\`${text === "" ? "" : `  \n  ${prose(text).join("\n  ").replace(/\n {2}\n/g, "\n\n")}`}`);
  }
  const text = line(node.getText());
  return [...head(text.slice(0, text.indexOf("{")).trim()), "", ...members];
}

function line(s) {
  return s.replace(/^export /, "").replace(/^declare /, "").replace(/\s*\n\s*/g, " ").replace(/ +/g, " ");
}

// A comment's paragraphs; their lines stay as they are. An indented part is code.
function prose(doc) {
  return doc.trim().split("\n").map((l) => l.trimEnd());
}
