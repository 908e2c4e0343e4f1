// Asks Perfetto's own trace processor about a trace.
//
// usage: node query.mjs FOLDER TRACE <QUERIES >ROWS
//   FOLDER   holds Perfetto's engine for browsers: trace_processor.wasm, engine_bundle.node.js (its worker) and engine.mjs (its
//            client, which exports EngineBase)
//   QUERIES  a JSON list of SQL; ROWS is a list of lists of rows, each an object by column
//
// The worker is made for a browser's; what it wants of one is stood for here: `self`, `location`, and `XMLHttpRequest` for the wasm file.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import vm from 'node:vm';

const [folder, trace] = process.argv.slice(2);
const queries = JSON.parse(readFileSync(0, 'utf8'));

const define = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
define('self', globalThis);
define('WorkerGlobalScope', class {});
define('location', { href: `${pathToFileURL(folder).href}/` });
define(
  'XMLHttpRequest',
  class {
    open(method, url) {
      this.name = url.split('/').at(-1);
    }
    send() {
      const { buffer, byteOffset, byteLength } = readFileSync(join(folder, this.name));
      this.response = buffer.slice(byteOffset, byteOffset + byteLength);
      this.status = 200;
      this.onload?.();
    }
  },
);
// What it says on the way is not an answer.
console.log = console.warn = (...told) => process.stderr.write(`${told.map(String).join(' ').slice(0, 500)}\n`);

vm.runInThisContext(readFileSync(join(folder, 'engine_bundle.node.js'), 'utf8'), { filename: 'engine_bundle.node.js' });
const { EngineBase } = await import(pathToFileURL(join(folder, 'engine.mjs')).href);
const channel = new MessageChannel();
globalThis.onmessage({ data: channel.port1 });

class Engine extends EngineBase {
  mode = 'WASM';
  id = 'test';
  rpcSendRequestBytes(bytes) {
    channel.port2.postMessage(bytes);
  }
}

await new Promise((resolve) => setTimeout(resolve, 100));
const engine = new Engine();
channel.port2.onmessage = ({ data }) => engine.onRpcResponseBytes(data);
await engine.parse(new Uint8Array(readFileSync(trace)));
await engine.notifyEof();
const answers = [];
for (const query of queries) {
  const result = await engine.query(query);
  const columns = result.columns();
  const rows = [];
  // Null stands for any type.
  const spec = Object.fromEntries(columns.map((column) => [column, null]));
  for (const row = result.iter(spec); row.valid(); row.next()) {
    rows.push(Object.fromEntries(columns.map((column) => [column, row[column]])));
  }
  answers.push(rows);
}
process.stdout.write(JSON.stringify(answers, (_, value) => (typeof value === 'bigint' ? Number(value) : value)), () =>
  process.exit(0),
);
