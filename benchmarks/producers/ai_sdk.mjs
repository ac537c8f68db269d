// Vercel's AI SDK, of whichever version is installed, as its telemetry is switched on there.
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import * as ai from 'ai';
import { z } from 'zod';

const exporter = new OTLPTraceExporter({ url: `${process.env.COLLECT}/v1/traces` });
const resource = resourceFromAttributes({ 'service.name': 'shop' });
const provider = new NodeTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(exporter)] });
provider.register();
if (ai.registerTelemetry) {
  // From version 7 on the SDK writes OpenTelemetry's own conventions, by a package of its own.
  const { OpenTelemetry } = await import('@ai-sdk/otel');
  ai.registerTelemetry(new OpenTelemetry({ runtimeContext: true }));
}
const compatible = createOpenAICompatible({ name: 'stub', baseURL: process.env.MODEL, apiKey: 'k', includeUsage: true });
const model = compatible('some-model-1');
const weather = ai.tool({ description: 'The weather.', inputSchema: z.object({ city: z.string() }), execute: async () => '21 C' });
const stopWhen = (ai.isStepCount ?? ai.stepCountIs)(3);
const plain = ['Hi', 'Tea?', 'ok', 'ok'];
const talks = {
  plain: { texts: plain },
  streamed: { texts: plain, stream: true },
  tools: { texts: ['Hi', 'What is the weather?', 'ok'], tools: { weather } },
  'streamed-tools': { texts: ['Hi', 'What is the weather?', 'ok'], tools: { weather }, stream: true },
  regenerated: { texts: plain, times: 2 },
  huge: { texts: ['Hi', 'Say something huge.', 'ok'] },
};
const said = [];
for (const name of process.argv.length > 2 ? process.argv.slice(2) : Object.keys(talks).filter((key) => key !== 'huge')) {
  const { texts, tools, stream, times = 1 } = talks[name];
  const messages = [];
  const context = { sessionId: name, userId: 'eve' };
  const telemetry = { isEnabled: true, functionId: 'ann', metadata: context, includeRuntimeContext: { sessionId: true, userId: true } };
  for (const text of texts) {
    messages.push({ role: 'user', content: text });
    let result;
    for (let time = 0; time < (text === 'ok' ? 1 : times); time++) {
      const options = { model, messages, runtimeContext: context, telemetry, experimental_telemetry: telemetry };
      Object.assign(options, ai.registerTelemetry ? { instructions: 'You are Ann.' } : { system: 'You are Ann.' });
      Object.assign(options, tools ? { tools, stopWhen } : {});
      result = stream ? ai.streamText(options) : await ai.generateText(options);
      if (stream) for await (const _ of result.textStream);
    }
    said.push([name, 'eve', text], [name, 'ann', await result.text]);
    messages.push(...(await (result.responseMessages ?? result.response.then?.((it) => it.messages) ?? result.response.messages)));
  }
}
await provider.forceFlush();
console.log(JSON.stringify(said));
