"""Sends alarms as OpenTelemetry logs, in protobuf over HTTP: `log_sender`."""

import logging
import os
from collections.abc import Callable, Sequence
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

    result: LogRecordExportResult | None = None

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        self.result = super().export(batch)
        return self.result


def log_sender(url: str) -> Callable[[Record], None]:
    """Return what sends an alarm as a log record, for an `Outbox`, whose thread waits for the answer.

    Headers, certificates and attributes of the resource are those of OTEL_EXPORTER_OTLP_HEADERS and its like.

    Args:
      url: of the collector, such as http://127.0.0.1:4318; /v1/logs is added.

    Raises:
      ValueError: where the address is not one of HTTP.
    """
    logs = logging.getLogger("opentelemetry")  # the outbox says what goes wrong, once
    logs.addHandler(logging.NullHandler())
    logs.propagate = False
    exporter = _Exporter(checked(url).rstrip("/").removesuffix(_PATH) + _PATH, timeout=TIMEOUT)
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "sgdlab")})
    provider = LoggerProvider(resource, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("sgdlab.advise", sgdlab.__version__)

    def send(record: Record) -> None:
        grave = SeverityNumber.ERROR if record["kind"] in (SILENT, HANGS) else SeverityNumber.WARN
        severity = SeverityNumber.INFO if record["event"] in (CLEARED, NAMED) else grave
        fields = {name: value for name, value in record.items() if name not in ("time", "text")}
        exporter.result = None
        logger.emit(
            timestamp=int(record["time"] * 1e9),
            severity_number=severity,
            severity_text=severity.name,
            body=record["text"],
            attributes={f"sgdlab.alarm.{name}": value for name, value in fields.items() if value not in (None, ())},
            event_name="sgdlab.alarm",
        )
        if exporter.result is not LogRecordExportResult.SUCCESS:
            raise ConnectionError("the collector does not answer, or refuses the logs")

    return send
