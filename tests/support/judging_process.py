"""A process that judges and can be killed: started once, it forks a child for every line it is sent.

For each line on standard input it prints the child's process id, and when the child has ended, its exit status.
Arguments: the server's URL, the database's URL, the number of requests, the width.
"""

import asyncio
import os
import sys

from pydantic import SecretStr

from persona_pipeline.base.database.engine import open_store
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.model.asking import ModelBackend, live_judge
from persona_pipeline.judging.money import has_price
from persona_pipeline.judging.providers.base import ModelOptions
from tests.support.judging import requests


def main(url: str, database: str, count: str, width: str) -> None:
    options = ModelOptions(base_url=url, api_key=SecretStr("test"), width=int(width), max_retries=0)
    # What every child would otherwise spend its first second on.
    options.provider.connect_sync(options).close()
    has_price(options.model)
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            store = open_store(database, migrate=False)
            judge = live_judge(ModelBackend(options, cache=JudgmentCache(store)))
            told = asyncio.run(judge.judge(requests(int(count))))
            os._exit(0 if all(verdict.score is not None for verdict in told) else 1)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
