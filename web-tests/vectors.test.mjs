import assert from "node:assert/strict";
import { before, test } from "node:test";

import * as palisade from "../wasm/index.js";
import { withPage } from "./browser.mjs";
import { answer, calls } from "./calls.mjs";
import { native } from "./native.mjs";

let expected;

before(() => {
  expected = native(calls);
});

/** The vectors hold the rule that a frame broke; an answer adds the place. */
function stable(verdict) {
  return Array.isArray(verdict) ? verdict : { ...verdict, reason: verdict.reason?.replace(/, at .*/, "") ?? null };
}

function agree(answers) {
  assert.equal(answers.length, calls.length);
  calls.forEach(({ name }, at) => assert.deepEqual(answers[at], expected[at], name));
}

test("the native answers are those of the vectors", () => {
  assert.ok(calls.length > 300);
  assert.equal(expected.length, calls.length);
  calls.forEach(({ name, expect, refused }, at) => {
    if (expect) assert.deepEqual(stable(expected[at]), expect, name);
    if (refused) {
      const [verdict, digest] = expected[at];
      assert.equal(verdict.ok, false, name);
      assert.deepEqual(digest, verdict, name);
      assert.ok(verdict.reason.length > 0, name);
    }
    if (name.startsWith("standard size")) assert.deepEqual(expected[at][0], { ok: true }, name);
  });
});

/** E38. One corpus of hostile documents, the same verdicts natively and in the package. */
test("the package answers the same in Node", async () => {
  await palisade.init();
  agree(answer(palisade, calls));
});

/** E38. The same in a browser. */
test("the package answers the same in Chromium", async () => {
  const answers = await withPage((page) =>
    page.evaluate(
      async ([calls, source]) => {
        const palisade = await import("/index.js");
        await palisade.init();
        return new Function(`return ${source}`)()(palisade, calls);
      },
      [calls, answer.toString()],
    ),
  );
  agree(answers);
});

test("a refused size names its member and its bounds", () => {
  const resources = { cpus: 0, memory_mib: 512 };
  const { reason, ...verdict } = palisade.validateSpecification("docker", JSON.stringify({ resources }));
  assert.deepEqual(verdict, { ok: false, param: "resources.cpus", min: 1, max: 255 });
  assert.match(reason, /resources\.cpus/);
});

test("an unknown provider is refused", () => {
  assert.equal(palisade.validateSpecification("podman", "{}").param, "provider");
});
