"""Review of labels by annotators: sessions and their events, the page, sheets, agreement and adjudication.

The public names are loaded on first use, because some of them need packages that take long to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.review.adjudication import AdjudicateConfig, adjudicate, adjudicate_files
    from hgld.review.agreement import agreement_files, measure_agreement
    from hgld.review.agreement_result import Agreement, AgreementConfig
    from hgld.review.coefficients import cohen_kappa, krippendorff_alpha, raw_agreement
    from hgld.review.decision_export import export_decisions
    from hgld.review.session import ReviewSession
    from hgld.review.sheets.export import ExportConfig, export_sheets
    from hgld.review.sheets.import_sheet import ImportConfig, import_sheet
    from hgld.review.store import copy_store, open_store, read_store

__all__ = [
    "AdjudicateConfig",
    "Agreement",
    "AgreementConfig",
    "ExportConfig",
    "ImportConfig",
    "ReviewSession",
    "adjudicate",
    "adjudicate_files",
    "agreement_files",
    "cohen_kappa",
    "copy_store",
    "export_decisions",
    "export_sheets",
    "import_sheet",
    "krippendorff_alpha",
    "measure_agreement",
    "open_store",
    "raw_agreement",
    "read_store",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "AdjudicateConfig": "adjudication",
        "Agreement": "agreement_result",
        "AgreementConfig": "agreement_result",
        "ExportConfig": "sheets.export",
        "ImportConfig": "sheets.import_sheet",
        "ReviewSession": "session",
        "adjudicate": "adjudication",
        "adjudicate_files": "adjudication",
        "agreement_files": "agreement",
        "cohen_kappa": "coefficients",
        "copy_store": "store",
        "export_decisions": "decision_export",
        "export_sheets": "sheets.export",
        "import_sheet": "sheets.import_sheet",
        "krippendorff_alpha": "coefficients",
        "measure_agreement": "agreement",
        "open_store": "store",
        "raw_agreement": "coefficients",
        "read_store": "store",
    },
)
