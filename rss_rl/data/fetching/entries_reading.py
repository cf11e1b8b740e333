"""Catalogue entries of tasks over passages: answer-sentence selection and cloze questions.

Sizes and SHA-256 are written down only where several public records of the same download agree.
"""

from __future__ import annotations

__all__ = ["READING"]

from rss_rl.data.fetching.entries import Entry, RemoteFile, Unpack

_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/"
_TRECQA = "https://github.com/brmson/dataset-sts/tree/master/data/anssel/wang"
_TRECQA_RAW = "https://raw.githubusercontent.com/brmson/dataset-sts/master/data/anssel/wang/"
_TRECQA_FILES = ("train.csv", "dev.csv", "test.csv")
_LAMBADA_FILES = ("lambada_development_plain_text.txt", "lambada_test_plain_text.txt")
_SELECTION, _CLOZE = "answer-sentence selection", "cloze"

READING: tuple[Entry, ...] = (
    Entry(
        "squad",
        _SELECTION,
        "CC BY-SA 4.0",
        _SQUAD,
        "download train-v1.1.json and dev-v1.1.json from its page",
        folder="squad",
        rows={"train": 87_599, "dev": 10_570},
        megabytes=35.1,
        files=(
            RemoteFile(
                "train-v1.1.json",
                f"{_SQUAD}dataset/train-v1.1.json",
                30_288_272,
                "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
            ),
            RemoteFile(
                "dev-v1.1.json",
                f"{_SQUAD}dataset/dev-v1.1.json",
                4_854_279,
                "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
            ),
        ),
        needs=("train-v1.1.json", "dev-v1.1.json"),
        note="SQuAD 1.1, as published: its test set is not public.",
    ),
    Entry(
        "trecqa",
        _SELECTION,
        "questions of TREC: public domain, says its packager",
        _TRECQA,
        "download train.csv, dev.csv and test.csv from its page",
        folder="trecqa",
        rows={"train": 4718, "dev": 1148, "test": 1517},
        megabytes=1.5,
        files=tuple(RemoteFile(file, _TRECQA_RAW + file) for file in _TRECQA_FILES),
        needs=_TRECQA_FILES,
        note="Wang et al. 2007 in the form of Yao et al. 2013, sentences below 40 words, as "
        "brmson/dataset-sts packs it; train.csv is the hand-labelled part.",
    ),
    Entry(
        "lambada",
        _CLOZE,
        "CC BY 4.0",
        "https://zenodo.org/record/2630551",
        "download lambada-dataset.tar.gz from its page",
        folder="lambada",
        rows={"dev": 4869, "test": 5153},
        megabytes=334.5,
        files=(
            RemoteFile(
                "lambada-dataset.tar.gz",
                "https://zenodo.org/record/2630551/files/lambada-dataset.tar.gz",
                334_527_694,
                "8fbe499096ddbdcbbd0cac406861b5026fb451d15b8fe04e0e4f3d082f2ad5d7",
                Unpack(_LAMBADA_FILES, limit_mb=4000),
            ),
        ),
        needs=_LAMBADA_FILES,
        note="Of the archive only the two files of passages are kept, 3.4 MB.",
    ),
    Entry(
        "cnn-dailymail",
        _CLOZE,
        "? (the page states none; the articles belong to CNN and the Daily Mail)",
        "https://cs.nyu.edu/~kcho/DMQA/",
        "download 'Questions' of CNN or of the Daily Mail by the links to a file store on its "
        "page, unpack it, and give the folder that has training, validation and test (of "
        "*.question files) as --from",
        folder="cnn-dailymail",
        rows={"train": 380_298, "dev": 3924, "test": 3198},
        files=(
            RemoteFile(
                "cnn.tgz",
                unpack=Unpack(
                    tuple(f"{split}/*.question" for split in ("training", "validation", "test")),
                    limit_mb=8000,
                    keep=2,
                    most=2_000_000,
                ),
            ),
        ),
        needs=("training", "validation", "test"),
        note="Rows are CNN's; the Daily Mail has 879,450, 64,835 and 53,182. cnn.tgz put into the "
        "folder by hand is unpacked by `rss-rl data fetch cnn-dailymail`.",
    ),
    Entry(
        "who-did-what",
        _CLOZE,
        "LDC user agreement (English Gigaword 5, LDC2011T07)",
        "https://tticnlp.github.io/who_did_what/",
        "obtain English Gigaword 5 (LDC2011T07) from the Linguistic Data Consortium, "
        "https://catalog.ldc.upenn.edu/LDC2011T07, make the XML files with the scripts that its "
        "page offers, and give the folder with train.xml, val.xml and test.xml (Strict or Relaxed) "
        "as --from",
        folder="who-did-what",
        rows={"train": 127_786, "dev": 10_000, "test": 10_000},
        note="Rows are of the strict setting; the relaxed one trains on 185,978.",
    ),
)
