"""The Messages API server as a process: ``python -m persona_pipeline.testing --latency 0.3``.

Prints its URL, and its counts as JSON when its standard input is closed.
"""

import argparse
import json
import random
import sys

from persona_pipeline.testing.messages_server import MessagesServer
from persona_pipeline.testing.rate_limits import RateLimits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--throttle-above", type=int, help="calls at once beyond which the answer is 529")
    parser.add_argument("--requests-per-minute", type=float, help="requests a minute beyond which the answer is 429")
    parser.add_argument("--untold", action="store_true", help="do not say the limits in headers")
    parser.add_argument(
        "--long-tail", action="store_true", help="latencies vary log-normally around --latency (sigma 1)"
    )
    arguments = parser.parse_args()
    waited: list[float] = []
    with MessagesServer(latency=arguments.latency, port=arguments.port) as server:
        server.throttle_above = arguments.throttle_above
        if arguments.requests_per_minute:
            server.limits = RateLimits({"requests": arguments.requests_per_minute}, told=not arguments.untold)
        if arguments.long_tail:
            drawn = random.Random(1)
            server.latencies = lambda: waited.append(arguments.latency * drawn.lognormvariate(0.0, 1.0)) or waited[-1]
        print(server.url, flush=True)
        sys.stdin.read()
        counts = {"calls": len(server.calls), "paid": server.paid, "busiest": server.busiest, "usage": server.usage}
        print(json.dumps(counts | {"waited": waited, "problems": server.problems[:3]}), flush=True)


if __name__ == "__main__":
    main()
