// Parquet by JavaScript: hyparquet writes and reads, parquet-wasm (Rust's writer) writes.
//
//   node outside.mjs MODULES ASKED
//
// ASKED is a JSON file: {"writer", "out", "groupRows", "pairs", "createdBy", and "columns" or "stream"}
// (an Arrow IPC stream), or {"read"}: the rows of that file as JSON, by hyparquet.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [modules, asked] = process.argv.slice(2)
const load = (...parts) => import(pathToFileURL(path.join(modules, ...parts)))
const ask = JSON.parse(fs.readFileSync(asked, 'utf8'))

if (ask.read) {
  const { parquetReadObjects } = await load('hyparquet', 'src', 'node.js')
  const body = fs.readFileSync(ask.read)
  const file = body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength)
  const rows = await parquetReadObjects({ file })
  console.log(JSON.stringify(rows, (_, value) => (typeof value === 'bigint' ? Number(value) : value)))
} else if (ask.writer === 'hyparquet') {
  const { parquetWriteBuffer } = await load('hyparquet-writer', 'src', 'node.js')
  const columnData = ask.columns.map(({ longs, ...column }) => ({
    ...column,
    data: longs ? column.data.map(BigInt) : column.data,
  }))
  const kvMetadata = Object.entries(ask.pairs).map(([key, value]) => ({ key, value }))
  const options = { columnData, rowGroupSize: ask.groupRows, kvMetadata, createdBy: ask.createdBy }
  fs.writeFileSync(ask.out, Buffer.from(parquetWriteBuffer(options)))
} else {
  const wasm = await load('parquet-wasm', 'node', 'parquet_wasm.js')
  const table = wasm.Table.fromIPCStream(fs.readFileSync(ask.stream))
  const properties = new wasm.WriterPropertiesBuilder()
    .setMaxRowGroupSize(ask.groupRows)
    .setCompression(wasm.Compression.ZSTD)
    .setKeyValueMetadata(new Map(Object.entries(ask.pairs)))
    .setCreatedBy(ask.createdBy)
    .build()
  fs.writeFileSync(ask.out, wasm.writeParquet(table, properties))
}
