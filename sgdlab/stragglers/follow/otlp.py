"""Sends alarms as OpenTelemetry logs, by OTLP over HTTP, in protobuf: `log_sender`."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

import sgdlab
from sgdlab.stragglers.diagnosis.causes import HANGS, SILENT
from sgdlab.stragglers.follow.alarms import CLEARED, NAMED
from sgdlab.stragglers.follow.outbox import TIMEOUT, Record, checked

_PATH = "/v1/logs"


class _Exporter(OTLPLogExporter):
    """Remembers how the last export ended."""

    result = LogRecordExportResult.FAILURE

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        self.result = super().export(batch)
        return self.result


def log_sender(url: str) -> Callable[[Record], None]:
    """Return what sends an alarm as a log record, for an `Outbox`, whose thread waits for the answer.

    Headers, certificates and compression are those of OTEL_EXPORTER_OTLP_HEADERS and its like, more about the resource
    that of OTEL_RESOURCE_ATTRIBUTES.

    Args:
      url: of the collector, such as http://127.0.0.1:4318; /v1/logs is added.

    Raises:
      ValueError: where the address is not one of HTTP.
    """
    base = checked(url).rstrip("/")
    logs = logging.getLogger("opentelemetry")  # the outbox says what goes wrong, once
    logs.addHandler(logging.NullHandler())
    logs.propagate = False
    exporter = _Exporter(base if base.endswith(_PATH) else base + _PATH, timeout=TIMEOUT)
    name = os.environ.get("OTEL_SERVICE_NAME", "sgdlab")
    provider = LoggerProvider(Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("sgdlab.advise", sgdlab.__version__)

    def send(record: Record) -> None:
        exporter.result = LogRecordExportResult.FAILURE
        severity = _severity(record)
        logger.emit(
            timestamp=int(record["time"] * 1e9),
            severity_number=severity,
            severity_text=severity.name,
            body=record["text"],
            attributes=_attributes(record),
            event_name="sgdlab.alarm",
        )
        if exporter.result is not LogRecordExportResult.SUCCESS:
            raise ConnectionError("the collector does not answer, or refuses the logs")

    return send


def _severity(record: Record) -> SeverityNumber:
    if record["event"] in (CLEARED, NAMED):
        return SeverityNumber.INFO
    return SeverityNumber.ERROR if record["kind"] in (SILENT, HANGS) else SeverityNumber.WARN


def _attributes(record: Record) -> Mapping[str, Any]:
    """Return the fields that are known, but for those that a log record has itself."""
    known = {name: value for name, value in record.items() if name not in ("time", "text") and value is not None}
    return {f"sgdlab.alarm.{name}": value for name, value in known.items() if value != ()}
