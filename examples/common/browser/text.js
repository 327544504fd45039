// Text as ids and ids as text, as the JSON files of an ONNX export say.

export class Text {
  constructor(content) {
    this.content = content;
    const { pad, end, start, source_start, source_end } = content.special;
    this.withoutText = new Set([pad, end, ...start, ...source_start, ...source_end]);
    this.idOf = new Map(content.tokens.map((token, id) => [token, id]));
    if (!Object.hasOwn(SPLIT, content.split)) {
      throw new Error(
        `This page splits texts into ${Object.keys(SPLIT).join(", ")}. ` +
          `Received: a text that is split by ${content.split}. In Python, ` +
          "keras_attn_serving.OnnxModel knows the others."
      );
    }
  }

  sourceIds(line) {
    const { special, max_length } = this.content;
    const pieces = SPLIT[this.content.split](this.normalized(line));
    const ids = pieces.map((piece) => this.known(this.idOf.get(piece)));
    const longest = max_length ?? Infinity;
    if (ids.length > longest && this.content.too_long === "error") {
      throw new Error(`The text may have at most ${longest} tokens.`);
    }
    const cut = ids.slice(0, longest);
    return [...special.source_start, ...cut, ...special.source_end];
  }

  text(ids) {
    const { tokens: every, special } = this.content;
    const shown = [...ids].filter((id) => !this.withoutText.has(id));
    const tokens = shown.map((id) => every[id] ?? every[special.unknown]);
    return tokens.join(this.content.join);
  }

  known(id) {
    const { unknown } = this.content.special;
    return id === undefined || this.withoutText.has(id) ? unknown : id;
  }

  normalized(line) {
    const { normalization, lowercase } = this.content;
    const normal = (x) => (normalization ? x.normalize(normalization) : x);
    let found = line.toWellFormed().replaceAll("\0", "\ufffd");
    found = normal(found.replace(/[\t-\r]/g, " "));
    if (!lowercase) return found;
    found = found.toLowerCase();
    return normalization === "NFC" ? normal(found) : found;
  }
}

const WORD = /[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
const SPLIT = {
  characters: (line) => [...line],
  whitespace: (line) => line.match(WORD) ?? [],
};
