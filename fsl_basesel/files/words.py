"""The words that say what an array or a column holds, and the endings of files that can be read."""

from __future__ import annotations

FEATURES = frozenset(
    "feature features feat feats embedding embeddings emb embs centroid centroids class_centroids "
    "prototype prototypes vector vectors x".split()
)
CENTROIDS = frozenset("centroid centroids class_centroids prototype prototypes".split())
LABELS = frozenset(
    "label labels y target targets class_id class_ids class_index class_idx label_id".split()
)
NAMES = frozenset(
    "name names class_name class_names classname classnames class classes category".split()
)
COUNTS = frozenset("image_count image_counts n_images num_images images count counts".split())
ROW_NUMBERS = frozenset(["", "index", "id", "unnamed: 0", "__index_level_0__"])
SIMILARITY = frozenset("similarity similarities sim f matrix".split())
NOVEL_NAMES = frozenset("novel novel_name novel_names novel_classes row_names".split())
CANDIDATE_NAMES = frozenset("candidates candidate_names column_names".split()) | NAMES
COSTS = frozenset("cost costs price".split())
INDICES = frozenset("index indices".split())

ARRAY_ENDINGS = (".npz", ".npy", ".pt", ".pth", ".safetensors")
TABLE_ENDINGS = (".csv", ".parquet")
