// An ONNX export that translates in the browser.

import { Text } from "./text.js";

export class Model {
  // `ort` is the module onnxruntime-web, `folder` has the export's files.
  static async load(ort, folder) {
    const files = ["source.json", "target.json"];
    const texts = await Promise.all(files.map((x) => read(`${folder}/${x}`)));
    const session = await ort.InferenceSession.create(`${folder}/model.onnx`);
    return new Model(ort, session, ...texts.map((x) => new Text(x)));
  }

  constructor(ort, session, source, target) {
    Object.assign(this, { ort, session, source, target });
  }

  // Returns the hypotheses for a line, best first: `[{ text, score }, ...]`.
  async translate(line) {
    const ids = this.source.sourceIds(line);
    const tensor = (x, size) =>
      new this.ort.Tensor("int32", Int32Array.from(x), size);
    const given = {
      ids: tensor(ids, [1, ids.length]),
      lengths: tensor([ids.length], [1]),
    };
    if (this.session.inputNames.includes("seed")) {
      given.seed = tensor([Math.random() * 2 ** 31], [1]);
    }
    const found = await this.session.run(given, OUTPUTS);
    const [error] = found.error.data;
    if (error) throw new Error(error);
    const [, count, longest] = found.target_ids.dims;
    const hypotheses = Array.from({ length: count }, (_, n) => {
      const first = n * longest;
      const end = first + found.target_lengths.data[n];
      const row = found.target_ids.data.slice(first, end);
      return { text: this.target.text(row), score: found.scores.data[n] };
    });
    return hypotheses.filter((x) => x.score > -Infinity);
  }
}

const OUTPUTS = ["target_ids", "target_lengths", "scores", "error"];

async function read(file) {
  const answer = await fetch(file);
  if (!answer.ok) throw new Error(`There is no ${file}.`);
  return answer.json();
}
