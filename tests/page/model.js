// A stand-in for an OpenAI-compatible server: streams what a test wrote down, one turn a request.

import { createServer } from "node:http";

/** `turns`: arrays of pieces of text, or `{ call, arguments }`. */
export async function startModel(turns) {
  const waiting = [...turns];
  const requests = [];
  const server = createServer((request, response) => {
    const body = [];
    request.on("data", (piece) => body.push(piece));
    request.on("end", async () => {
      requests.push(Buffer.concat(body).toString());
      const turn = waiting.shift() ?? ["…"];
      response.writeHead(200, { "content-type": "text/event-stream", connection: "close" });
      const chunk = (delta, reason = null) => response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`);
      if (Array.isArray(turn)) {
        for (const piece of turn) {
          chunk({ content: piece });
          await new Promise((resolve) => setTimeout(resolve, 150));
        }
        chunk({}, "stop");
      } else {
        chunk({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: turn.call, arguments: JSON.stringify(turn.arguments) } }] });
        chunk({}, "tool_calls");
      }
      response.end("data: [DONE]\n\n");
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  return {
    requests,
    config: `[agent.model]\nbase_url = "http://127.0.0.1:${port}/v1"\nname = "stub"\napi_key = "none"\n`,
    close: () => server.close(),
  };
}
