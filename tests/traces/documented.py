"""What instrumentations write by their documentation on the span of one exchange: a question, and an answer to it.

One row an instrumentation: its attributes, then its events. ``J`` stands for values that it writes as JSON in a text.
"""

import json
from typing import Any

J = json.dumps
BE, ASKED, SAID = "Be Otto.", "Is the lift safe?", "It holds 630 kg."
HEARD = [{"role": "system", "content": BE}, {"role": "user", "content": ASKED}]
ANSWER = {"role": "assistant", "content": SAID}
COMPLETION = {"choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}], "usage": {"total_tokens": 9}}
PARTS = [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in (*HEARD, ANSWER)]
GEMINI = [{"role": "user", "parts": [{"text": ASKED}]}, {"role": "model", "parts": [{"text": SAID}]}]
CONSTRUCTOR = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages"]}
HUMAN = {**CONSTRUCTOR, "id": [*CONSTRUCTOR["id"], "HumanMessage"], "kwargs": {"content": ASKED}}
AI = {**CONSTRUCTOR, "id": [*CONSTRUCTOR["id"], "AIMessage"], "kwargs": {"content": SAID}}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
LLM = {"openinference.span.kind": "LLM"}


def numbered(inputs: str, outputs: str, inside: str = "") -> dict[str, Any]:
    """Return the attributes of messages that have one for each field."""
    found = {f"{inputs}.{at}.{inside}{key}": text for at, item in enumerate(HEARD) for key, text in item.items()}
    return found | {f"{outputs}.0.{inside}{key}": text for key, text in ANSWER.items()}


INFERENCE = LLM | numbered("llm.input_messages", "llm.output_messages", "message.")
BLOCKS = {
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.contents.0.message_content.type": "text",
    "llm.input_messages.0.message.contents.0.message_content.text": ASKED,
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": SAID,
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "OpenTelemetry GenAI": CHAT | {"gen_ai.input.messages": J(PARTS[:2]), "gen_ai.output.messages": J(PARTS[2:])},
    "OpenTelemetry GenAI, not encoded": CHAT | {"gen_ai.input.messages": PARTS[:2], "gen_ai.output.messages": PARTS[2:]},
    "Datadog, by OpenTelemetry": CHAT | {"gen_ai.input.messages": J(HEARD), "gen_ai.output.messages": J([ANSWER])},
    "Gemini CLI": {"gen_ai.operation.name": "llm_call", "gen_ai.input.messages": ASKED, "gen_ai.output.messages": J(GEMINI[1:])},
    "OpenLLMetry": CHAT | numbered("gen_ai.prompt", "gen_ai.completion"),
    "OpenLLMetry of old": {"llm.request.type": "chat"} | numbered("llm.prompts", "llm.completions"),
    "Portkey": {"gen_ai.request.model": "m", "gen_ai.prompt": J(HEARD), "gen_ai.completion": J([ANSWER])},
    "OpenInference": INFERENCE | {"input.value": J({"messages": HEARD}), "output.value": J(COMPLETION)},
    "Arize Phoenix, by hand": LLM | {"input.value": ASKED, "output.value": SAID},
    "LlamaIndex": LLM | {"input.value": J({"messages": [HUMAN]}), "output.value": SAID},
    "LlamaIndex, a workflow": INFERENCE | {
        "input.value": J({"messages": ["ChatMessage(role=<MessageRole.USER: 'user'>, blocks=[TextBlock(text='x')])"]}),
        "output.value": f"assistant: {SAID}",
    },
    "smolagents": LLM | BLOCKS,
    "DSPy": LLM | {"input.value": J({"prompt": None, "messages": HEARD}), "output.value": J([SAID])},
    "MLflow": {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": J({"model": "m", "messages": HEARD}),
        "mlflow.spanOutputs": J(COMPLETION),
    },
    "MLflow, Anthropic": {
        "mlflow.spanType": "LLM",
        "mlflow.spanInputs": J({"system": BE, "messages": HEARD[1:]}),
        "mlflow.spanOutputs": J({"type": "message", "role": "assistant", "content": [{"type": "text", "text": SAID}]}),
    },
    "Sentry": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.messages": J(HEARD),
        "gen_ai.response.text": J([SAID]),
        "gen_ai.response.model": "m",
    },
    "Laminar": {"lmnr.span.type": "LLM", "lmnr.span.input": J(HEARD), "lmnr.span.output": J(ANSWER)},
    "Laminar, a text": {"lmnr.span.type": "LLM", "lmnr.span.input": J(ASKED), "lmnr.span.output": J(SAID)},
    "Braintrust": {
        "braintrust.span_attributes": J({"type": "llm", "name": "chat"}),
        "braintrust.input_json": J(HEARD),
        "braintrust.output_json": J([{"index": 0, "message": ANSWER}]),
    },
    "Haystack": {
        "haystack.component.type": "OpenAIChatGenerator",
        "haystack.component.input_types": J({"messages": "list"}),
        "haystack.component.input": J({"messages": [{"role": "user", "content": [{"text": ASKED}], "name": None, "meta": {}}]}),
        "haystack.component.output": J({"replies": [{"role": "assistant", "content": [{"text": SAID}], "meta": {}}]}),
    },
    "Haystack, an agent": {
        "haystack.agent.input": J({"messages": [{"role": "user", "content": [{"text": ASKED}], "name": None, "meta": {}}]}),
        "haystack.agent.output": J({"messages": [
            {"role": "user", "content": [{"text": ASKED}]},
            {"role": "assistant", "content": [{"tool_call": {"tool_name": "look", "arguments": {}, "id": "c"}}]},
            {"role": "tool", "content": [{"tool_call_result": {
                "result": "42", "error": False, "origin": {"tool_name": "look", "arguments": {}, "id": "c"}}}]},
            {"role": "assistant", "content": [{"reasoning": {"reasoning_text": "Hm.", "extra": {}}}, {"text": SAID}]},
        ]}),
    },
    "Haystack of old": {
        "haystack.component.type": "OpenAIChatGenerator",
        "haystack.component.input": J({"messages": [{"_role": "user", "_content": [{"text": ASKED}], "_name": None}]}),
        "haystack.component.output": J({"replies": [{"_role": "assistant", "_content": [{"text": SAID}], "_meta": {}}]}),
    },
    "LiveKit": {
        "lk.chat_ctx": J({"items": [
            {"id": "a", "type": "message", "role": "system", "content": [BE]},
            {"id": "b", "type": "agent_handoff", "new_agent_id": "otto"},
            {"id": "c", "type": "message", "role": "user", "content": [ASKED], "interrupted": False},
        ]}),
        "lk.response.text": SAID,
    },
    "LiveKit since 1.7": {"gen_ai.request.model": "m", "lk.pii.user_input": ASKED, "lk.pii.response.text": SAID},
    "Mastra": {"mastra.span.type": "model_generation", "input": J({"messages": HEARD}), "output": J({"text": SAID, "files": []})},
    "Weave": {"weave.span.kind": "llm", "input.value": J({"messages": HEARD}), "output.value": J(COMPLETION)},
    "Weave, by hand": {"wandb.thread_id": "t", "input.value": ASKED, "output.value": SAID},
    "Quarkus": CHAT | {"gen_ai.content.prompt": ASKED, "gen_ai.content.completion": SAID},
    "Quarkus, newer": CHAT | {"gen_ai.prompt": ASKED, "gen_ai.completion": SAID},
    "Spring AI of old": CHAT | {"gen_ai.prompt": J([BE, ASKED]), "gen_ai.completion": J([SAID])},
    "Logfire": {"request_data": J({"messages": HEARD, "model": "m"}), "response_data": J({"message": ANSWER})},
    "Logfire, a stream": {"request_data": J({"messages": HEARD}), "response_data": J({"combined_chunk_content": SAID})},
    "pydantic-ai": CHAT | {
        "events": J([
            {"event.name": "gen_ai.system.message", "content": BE, "role": "system"},
            {"event.name": "gen_ai.user.message", "content": ASKED, "role": "user"},
            {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": SAID}},
        ])
    },
    "pydantic-ai, an agent": {"pydantic_ai.all_messages": J(PARTS[:2]), "final_result": SAID},
    "Vercel AI SDK": {
        "ai.operationId": "ai.streamText.doStream",
        "ai.prompt.messages": J([HEARD[0], {"role": "user", "content": [{"type": "text", "text": ASKED}]}]),
        "ai.response.text": SAID,
    },
    "Langfuse": {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": J(HEARD),
        "langfuse.observation.output": J(ANSWER),
    },
    "Langfuse, all that was said as the output": {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": J({"tools": [], "messages": HEARD}),
        "langfuse.observation.output": J([*HEARD, {**ANSWER, "tool_calls": None}]),
    },
    "Langfuse, LangChain": {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": J([*HEARD, {"role": "tool", "content": {"type": "function", "function": {"name": "look"}}}]),
        "langfuse.observation.output": J(ANSWER),
    },
    "LangSmith": {
        "langsmith.span.kind": "LLM",
        "gen_ai.prompt": J({"messages": [[HUMAN]]}),
        "gen_ai.completion": J({"generations": [[{"text": SAID, "type": "ChatGeneration", "message": AI}]]}),
    },
    "Google ADK": {
        "gen_ai.operation.name": "generate_content",
        "gcp.vertex.agent.llm_request": J({"model": "m", "config": {"system_instruction": BE}, "contents": GEMINI[:1]}),
        "gcp.vertex.agent.llm_response": J({"content": GEMINI[1], "partial": False}),
    },
    "Genkit": {
        "genkit:metadata:subtype": "model",
        "genkit:input": J({"messages": [{"role": "user", "content": [{"text": ASKED}]}]}),
        "genkit:output": J({"message": {"role": "model", "content": [{"text": SAID}]}, "finishReason": "stop"}),
    },
    "VoltAgent": {"span.type": "llm", "llm.messages": J(HEARD), "output": SAID},
    "AutoGen": {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.input.messages": J([{"source": "user", "content": ASKED, "type": "UserMessage"}]),
        "gen_ai.output.messages": J([{"source": "otto", "content": SAID, "type": "AssistantMessage"}]),
    },
    "OpenAI Responses, by hand": {
        "span.type": "llm",
        "llm.request": J({"instructions": BE, "input": ASKED}),
        "llm.response": J({"output": [{"type": "reasoning", "summary": []}, {
            "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SAID}]}]}),
    },
    "Cohere, by hand": {"llm.prompt": ASKED, "llm.completion": J({"text": SAID, "finish_reason": "COMPLETE"})},
    "Bedrock Converse, by hand": {
        "app.request": J({"messages": [{"role": "user", "content": [{"text": ASKED}]}]}),
        "app.response": J({"output": {"message": {"role": "assistant", "content": [{"text": SAID}]}}}),
    },
    "Ollama, by hand": {"app.request": J({"messages": HEARD}), "app.response": J({"message": ANSWER, "done": True})},
}  # fmt: skip
CONTENT = "gen_ai.event.content"
EVENTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "OpenTelemetry GenAI, an event": [
        ("gen_ai.client.inference.operation.details",
         {"gen_ai.input.messages": J(PARTS[:2]), "gen_ai.output.messages": J(PARTS[2:])}),
    ],
    "OpenTelemetry GenAI of old": [
        ("gen_ai.system.message", {"content": BE}),
        ("gen_ai.user.message", {"content": ASKED}),
        ("gen_ai.choice", {"index": 0, "message": J(ANSWER)}),
        ("gen_ai.choice", {"index": 1, "message": J({"content": "Never read."})}),
    ],
    "OpenTelemetry GenAI, the oldest": [
        ("gen_ai.content.prompt", {"gen_ai.prompt": J(HEARD)}),
        ("gen_ai.content.completion", {"gen_ai.completion": J([ANSWER])}),
    ],
    "OpenLIT": [
        ("gen_ai.content.prompt", {"gen_ai.prompt": f"system: {BE}\nuser: {ASKED}"}),
        ("gen_ai.content.completion", {"gen_ai.completion": SAID}),
    ],
    "Spring AI": [
        ("gen_ai.content.prompt", {"gen_ai.prompt": [BE, ASKED]}),
        ("gen_ai.content.completion", {"gen_ai.completion": [SAID]}),
    ],
    "Azure AI": [
        ("gen_ai.system.message", {"gen_ai.system": "az.ai.inference", CONTENT: J({"role": "system", "content": BE})}),
        ("gen_ai.user.message", {CONTENT: J(HEARD[1])}),
        ("gen_ai.choice", {CONTENT: J({"index": 0, "message": ANSWER, "finish_reason": "stop"})}),
    ],
    "Strands": [
        ("gen_ai.user.message", {"content": J([{"text": ASKED}])}),
        ("gen_ai.choice", {"finish_reason": "end_turn", "message": J([{"text": SAID}])}),
    ],
    "an event of any name": [("prompt", {"text": ASKED}), ("completion", {"text": SAID})],
}  # fmt: skip
