"""Names of columns, in the words that logs use, and the roles that they suggest."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.data.core.ends import TERMINATIONS, TRUNCATIONS
from tidelog.data.io.table_fields import Field
from tidelog.data.validation.clusters import kind_of, name_words

_CASES = (
    "episode", "trajectory", "stay", "admission", "encounter", "patient", "subject", "case", "session", "game", "run",
    "trial",
)  # fmt: skip
EPISODE = (
    *(f"{case}{number}" for case in _CASES for number in ("", "_id", "_no", "_nr", "_number", "_key", "_index")),
    "traj", "traj_id", "rollout", "mdp_id", "icustay_id", "hadm_id", "conversation_id", "ep", "eps", "ep_id",
)  # fmt: skip
USER = (
    "user", "user_id", "uid", "userid", "customer", "customer_id", "visitor", "visitor_id", "visitorid", "client",
    "client_id", "member_id", "account_id", "reviewer_id", "player_id",
)  # fmt: skip
ITEM = (
    "item", "item_id", "items", "itemid", "iid", "product", "product_id", "sku", "stock_code", "movie", "movie_id",
    "article", "article_id", "asin", "business_id", "track_id", "song_id", "isbn", "book_id", "content_id", "video_id",
    "aid",
)  # fmt: skip
SESSION = ("session", "session_id", "sessionid")
RATING = ("rating", "ratings", "stars", "quantity", "play_count", "count")
EVENT = ("event", "event_type", "behavior", "behaviour", "behavior_type", "interaction", "kind")
SINGLE: dict[str, tuple[str, ...]] = {  # the column with the first name in the list takes the role
    "episode": (*EPISODE, *USER),
    "step": ("step", "steps", "step_id", "step_index", "timestep", "time_step", "frame_index", "t", "sequence_number",
             "seq", "visit", "visit_no", "turn", "round", "stage", "decision_no", "hour", "day", "week"),
    "time": ("time", "timestamp", "datetime", "ts", "date", "event_time", "charttime", "created_at", "logged_at"),
    "reward": ("reward", "rewards", "r", "click", "clicked", "clicks", "conversion", "converted", "purchase",
               "purchased", "bought", "sale", "recovered", "survived", "success", "outcome", "revenue", "profit",
               "rating", "return"),
    "terminated": (*TERMINATIONS, "ended", "end", "is_end", "finished", "final", "died", "dead", "death", "episode_end",
                   "game_over"),
    "truncated": (*TRUNCATIONS, "is_last", "episode_terminals", "censored", "left", "discharged"),
    "propensity": ("propensity", "propensity_score", "pscore", "p_score", "action_prob", "action_probability",
                   "behavior_prob", "behaviour_prob", "behavior_probability", "behaviour_probability", "logging_prob",
                   "logging_probability", "prob_action", "mu", "pi_b", "prob", "probability", "p"),
    "weight": ("weight", "weights", "sample_weight", "importance_weight", "w"),
}  # fmt: skip
_OUTCOMES = {"outcome", "readmitted", "readmission", "died", "death", "mortality", "survived", "survival", "label",
             "target", "churned", "converted", "conversion", "reward", "rewards", "redeemed", "redemption", "responded",
             "feedback", "clicked", "purchased", "bought", "revenue", "profit", "recovered", "satisfaction", "latency",
             "cost", "costs", "savings", "kwh", "discomfort", "benefit", "benefits", "click", "purchase", "sale",
             "success", "payoff", "utility"}  # fmt: skip
_DOUBTFUL = {"clicks", "purchases", "sales", "score", "gain", "gains", "loss", "losses", "margin", "spend", "rating",
             "response", "result", "results", "quality", "points", "yield", "output"}  # fmt: skip
_PAST = {"last", "past", "previous", "prev", "prior", "history", "historic", "since", "before", "ago", "avg", "average",
         "mean", "expected", "budget"}  # fmt: skip
ACTION = (
    "action", "actions", "a", "act", "action_id", "treatment", "intervention", "arm", "arm_id", "dose", "decision",
    "choice", "control", *ITEM, "coupon", "offer", "therapy", "medication", "drug", "variant", "banner",
)  # fmt: skip
NEXT = {"next", "new", "following"}
_OBSERVATION_WORDS = {"obs", "observation", "observations", "state", "states", "feature", "features", "context",
                      "covariate", "covariates", "affinity"}  # fmt: skip
_LETTERS = ("x", "s")  # names of observations, alone or with a number; elsewhere s are seconds
CODED = {
    "id", "code", "type", "category", "class", "kind", "group", "zip", "zipcode", "sex", "gender", "ward", "state",
    "cell", "tile", "node", "room", "cluster", "bin", "zone", "region", "segment",
}  # fmt: skip
FEW_CODES = 50


def last_word(name: str) -> str:
    """The last word of a name, in lower case; empty if it has none."""
    return (name_words(name) or [""])[-1]


def plain_name(one: Field) -> str:
    """The words of a column's name, joined by underscores."""
    return "_".join(name_words(one.name))


def is_observed(words: Sequence[str]) -> bool:
    """Whether the words of a name say an observation."""
    lettered = bool(words) and words[0] in _LETTERS and all(word.isdigit() for word in words[1:])
    return lettered or not _OBSERVATION_WORDS.isdisjoint(words)


_ROW_NUMBERS = (
    "index", "unnamed", "unnamed_0", "row", "rows", "row_id", "row_index", "row_name", "row_names", "rowname",
    "rownames", "row_number", "row_nr", "row_no", "row_num", "rownum", "rownumber", "rowid", "rowindex",
)  # fmt: skip


def numbers_rows(one: Field, rows: int) -> bool:
    """Whether a column has the name of row numbers, and another value in every row."""
    return plain_name(one) in _ROW_NUMBERS and one.unique == rows


def is_identity(one: Field, rows: int) -> bool:
    """Whether nearly every row has its own value, as numbers of orders and of rows do."""
    many = one.unique > max(rows / 2, FEW_CODES)
    numbered = one.kind == "whole number" and (one.consecutive or last_word(one.name) in ("id", "no"))
    return many and (one.kind == "word" or numbered)


def is_person(one: Field) -> bool:
    """Whether a column numbers persons, of whom there are too many for a label."""
    return kind_of(one.name) == "group" and one.kind in ("whole number", "word") and one.unique > FEW_CODES


def is_outcome(one: Field) -> bool:
    """Whether a column is named like what is known after the decision only."""
    return _has_word(one, _OUTCOMES)


def may_be_outcome(one: Field) -> bool:
    """Whether a column is named like what follows a decision, or else like what came before it."""
    return _has_word(one, _DOUBTFUL) and not is_outcome(one)


def _has_word(one: Field, known: set[str]) -> bool:
    words = set(name_words(one.name))
    return bool(words & known) and not words & _PAST and one.kind not in ("time", "empty", "list", "objects")


def names_interactions(named: Sequence[Field]) -> bool:
    """Whether a name says users, items or kinds of event."""
    return not {plain_name(one) for one in named}.isdisjoint((*USER, *ITEM, *EVENT))


def counts_rows(one: Field) -> bool:
    """Whether a column has every whole number from 0 or 1 to its largest."""
    return one.kind == "whole number" and one.low in (0.0, 1.0) and one.unique == (one.high or 0.0) - one.low + 1


def list_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")
