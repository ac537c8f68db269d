import json
import sys

given = json.load(sys.stdin)
print(json.dumps({"score": float(len(given["answer"].split()) <= given["config"]["most"])}))
