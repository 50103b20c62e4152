// The AI SDK with its provider for servers like this: generateText, streamText, structured output, tools.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { Report, TASK, answer, call, exceptionOf } from "./driver.mjs";

const provider = createOpenAICompatible({
  name: "pagewire",
  baseURL: TASK.base_url,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const asked = {
  model: provider(TASK.model),
  messages: TASK.messages,
  maxOutputTokens: TASK.max_tokens,
  temperature: 0,
  maxRetries: 0,
};
const schema = jsonSchema(TASK.tool.parameters);
const planTrip = { description: TASK.tool.description, inputSchema: schema };
const askedToCall = {
  ...asked,
  maxOutputTokens: TASK.max_tokens_of_calls,
  tools: { [TASK.tool.name]: tool(planTrip) },
  toolChoice: { type: "tool", toolName: TASK.tool.name },
};

function answerOf(text, finish, usage) {
  return answer(text, finish, usage.inputTokens, usage.outputTokens);
}

function callsOf(calls) {
  return calls.map((item) => call(item.toolCallId, item.toolName, item.input));
}

// A stream reports what went wrong apart from its results.
function streamed(fields) {
  return streamText({
    ...fields,
    onError: ({ error }) => {
      throw error;
    },
  });
}

const report = new Report();

await report.add("answers", "generateText", async () => {
  const { text, finishReason, usage } = await generateText(asked);
  return answerOf(text, finishReason, usage);
});

await report.add("answers", "streamText", async () => {
  const stream = streamed(asked);
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  return answerOf(text, await stream.finishReason, await stream.usage);
});

await report.add("calls", "generateText", async () => callsOf((await generateText(askedToCall)).toolCalls));

await report.add("calls", "streamText", async () => callsOf(await streamed(askedToCall).toolCalls));

const structured = { ...asked, maxOutputTokens: TASK.max_tokens_of_calls, output: Output.object({ schema }) };

await report.add("objects", "generateText", async () => (await generateText(structured)).output);

await report.add("objects", "streamText", async () => {
  let last;
  for await (const partial of streamed(structured).partialOutputStream) last = partial;
  return last;
});

await report.add("others", "after a call", async () => {
  const { text, finishReason, usage, steps } = await generateText({
    ...askedToCall,
    tools: { [TASK.tool.name]: tool({ ...planTrip, execute: () => TASK.result }) },
    stopWhen: stepCountIs(2),
    // The model is made to call in the first step alone, and gives the answer in the second.
    prepareStep: ({ stepNumber }) => (stepNumber === 0 ? {} : { toolChoice: "none" }),
  });
  if (steps.length !== 2) throw new Error(`${steps.length} steps`);
  return answerOf(text, finishReason, usage);
});

await report.add("others", "too long", () => {
  return exceptionOf(() => generateText({ ...asked, messages: [{ role: "user", content: TASK.too_long }] }));
});

report.print();
