"""Message batches: half the price, within a day. What is submitted is on record first, so that nothing is paid for twice."""

import json
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from persona_pipeline.judging.answers import proposition_problem
from persona_pipeline.judging.batch_rows import BatchRow, BatchTable, RequestRow
from persona_pipeline.judging.cache import JudgmentCache
from persona_pipeline.judging.client import AnthropicOptions, connect_sync
