// A headless Chromium and a loopback server for the package's files.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { chromium } from "playwright-core";

const FILES = {
  "/": ["text/html", undefined],
  "/index.js": ["text/javascript", "index.js"],
  "/pkg/palisade_wasm.js": ["text/javascript", "pkg/palisade_wasm.js"],
  "/pkg/palisade_wasm_bg.wasm": ["application/wasm", "pkg/palisade_wasm_bg.wasm"],
};

async function serve() {
  const server = createServer(async ({ url }, response) => {
    const [type, file] = FILES[url] ?? [];
    if (type === undefined) return response.writeHead(404).end();
    const body = file ? await readFile(new URL(`../wasm/${file}`, import.meta.url)) : "<!doctype html><title>palisade</title>";
    response.writeHead(200, { "content-type": type }).end(body);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return server;
}

/** Calls `use` with a page that can import `/index.js`, and ends server and browser afterwards. */
export async function withPage(use) {
  const server = await serve();
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    return await use(page);
  } finally {
    await browser.close();
    server.close();
  }
}
