"""The public names of hgld and its rooms: which there are, and that each can be imported and is documented."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import hgld

ROOMS = [f"hgld.{module.name}" for module in pkgutil.iter_modules(hgld.__path__) if module.ispkg]
#: What users may rely on. A change of this table belongs in the changelog.
PUBLIC_NAMES = {
    "hgld": """
        HgldError Hierarchy RetrievalResult __version__ benchmark datasets evaluate_retrieval evaluation
        hierarchy inspection labels load_hierarchy load_model losses models training
    """,
    "hgld.benchmark": """
        BenchmarkSettings Comparison ComparisonSummary CostEstimate LocalLauncher Slot SlurmLauncher
        compare_methods estimate_cost parse_slots read_comparison
    """,
    "hgld.datasets": """
        ClassBalancedSampler FeatureDataset Gldv2 HierarchicalSampler ImageDataset ImageLabels ImageSettings
        LabelTable Manifest NestedFolders READERS RepackConfig evaluation_batches evaluation_transform make_manifest
        read_images read_labels read_manifest repack_images training_batches training_transform write_manifest
    """,
    "hgld.evaluation": """
        Evaluation EvaluationConfig EvaluationFiles RankingConfig RetrievalResult RetrievalTask
        evaluate_files evaluate_retrieval evaluate_tasks
    """,
    "hgld.gldv2": """
        FetchConfig FetchSummary ImageReader IndexSummary PhotographList PhotographsConfig PhotographsSummary
        fetch_gldv2 fetch_photographs index_images read_image_to_landmark read_photograph_list
        read_retrieval_solution
    """,
    "hgld.hierarchy": """
        BuildConfig Hierarchy LabelMatrix LabelSets Level build_file column_of compare_files find_trace_sources
        load_hierarchy lowest_common_level relevance stats_file trace_landmark vote
    """,
    "hgld.inspection": """
        Photo PhotoSource class_means count_scores find_method_differences find_worst_queries
        neighbour_agreement precision_recall write_method_differences_page write_worst_queries_page
    """,
    "hgld.labels": """
        CleanConfig ClusterConfig CompleteConfig CompletionFiles EmbedConfig TextEncoder clean_file
        cluster_file complete_file embed_file evaluate_completion evaluate_suggestions find_completion_files
        load_encoder suggest_file
    """,
    "hgld.losses": """
        ArcFace AtLevel BlackBoxAP CSL ContrastiveLoss CrossBatchMemory CrossEntropy DecomposabilityLoss FastAP
        Heaviside LOSSES LabelSpace LeakyStep LiftedStructureLoss Loss MarginLoss MixedPositives MultiSimilarityLoss
        ProxyGML ProxyLoss ProxyNCA ProxyNCAPP RankLoss SelectivelyContrastiveTriplet
        SiMix Sigmoid SmoothAP SmoothHAP SmoothNDCG SmoothRecall SoftBinAP Step SumOverLevels SupAP SupHAP
        SupNDCG SupRankStep SupRecall TripletLoss WeightedSum XBMContrastive build_loss gather_embeddings
        happier pair_levels roadmap rod_ndcg rod_recall suprank_step
    """,
    "hgld.models": """
        AveragePooling EmbedImagesConfig EmbeddingModel GeM ImageEmbedder MaxPooling ModelSettings PRESETS build_model
        embed_images embed_part image_settings_for initialise_projection load_checkpoint_model load_model
        load_untrained_model merge_parts read_checkpoint save_checkpoint
    """,
    "hgld.rejection": """
        DETECTORS Detector DetectorModel DetectorRecord NeighbourDetector SavedDetector build_detector load_detector
        save_detector
    """,
    "hgld.release": """
        ReleaseConfig ReleaseSummary verify_checksums write_release
    """,
    "hgld.review": """
        AdjudicateConfig Agreement AgreementConfig ExportConfig ImportConfig ReviewSession
        adjudicate adjudicate_files agreement_files cohen_kappa copy_store export_decisions export_sheets import_sheet
        krippendorff_alpha measure_agreement open_store raw_agreement read_store
    """,
    "hgld.search": """
        Answers CalibrationFiles Gallery IndexFiles QueryModel Searcher fit_detector load_query_model
        read_gallery
    """,
    "hgld.tables": """
        CLASSES CLEAN CLUSTERS COMPARISON COMPLETED HIERARCHY IMAGES INSTANCE_OF LABEL_EMBEDDINGS
        LABEL_SOURCES MANIFEST NEAREST PHOTOGRAPHS Provenance REMOVED SCRAPED SPLITS STUDY SUGGESTIONS TABLES
        TableSpec classes_path find_scraped_tables input_digests is_up_to_date read_provenance
        read_table repeated_keys with_provenance write_table
    """,
    "hgld.taxonomy": """
        DECISIONS Decision DecisionIndex Group ROOTS VocabularyTerm label_id normalise_label read_decisions
        read_taxonomy read_vocabulary unify_labels write_decisions write_taxonomy
    """,
    "hgld.training": """
        PushConfig PushSummary RunFolder Trainer TrainingSettings TrainingSummary is_finished push_model
        read_training_settings train
    """,
    "hgld.wikimedia": """
        ClientConfig LandmarkCategory ScrapeConfig ScrapeSummary WikimediaClient read_categories scrape_file
    """,
}
#: Rooms for the inside of hgld.
INTERNAL_ROOMS = {"hgld.cli", "hgld.compute", "hgld.demo", "hgld.figures", "hgld.io", "hgld.pages"}


def test_every_room_is_public_or_internal() -> None:
    assert {*PUBLIC_NAMES, *INTERNAL_ROOMS} == {"hgld", *ROOMS}


@pytest.mark.parametrize("room", PUBLIC_NAMES)
def test_public_names(room: str) -> None:
    module = import_module(room)
    assert sorted(module.__all__) == PUBLIC_NAMES[room].split()
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("room", PUBLIC_NAMES)
def test_public_names_can_be_imported_and_are_documented(room: str) -> None:
    module = import_module(room)
    assert module.__doc__
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and not hasattr(value, "__origin__"):  # aliases of types have no docstring of their own
            assert value.__doc__, name
            assert value.__doc__.partition("\n")[0].rstrip().endswith((".", ":", "::")), name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name


@pytest.mark.parametrize("room", PUBLIC_NAMES)
def test_no_module_hides_a_public_name(room: str) -> None:
    # Once imported, a module is an attribute of its package, which comes before names that are imported on first use.
    package = import_module(room)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg}
    for name in modules.intersection(package.__all__):
        import_module(f"{room}.{name}")
        assert not isinstance(getattr(package, name), ModuleType), name
