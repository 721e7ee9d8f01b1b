"""Loaders of training data over `Dataset`. Each module needs a package of its own.

| module | package |
| --- | --- |
| `torch` | torch: `LanceDataset`, `SafeLanceDataset`, `get_safe_loader` |
| `huggingface` | datasets: `to_iterable_dataset` |
"""
