"""Invalid requests, each with its status and message, and random ones."""

import json

ROW = {"age": 3.0, "dose": 1.0, "pressure": 1.0, "ward": "b", "sex": "m"}
JSON = {"content-type": "application/json"}
BODIES = {
    "a name": ({"observation": ROW | {"agee": 1.0}}, 422, "unknown feature 'agee': did you mean 'age'?"),
    "none at all": ({"observation": {}}, 422, "missing required field"),
    "too few": ({"observation": {k: v for k, v in ROW.items() if k != "ward"}}, 422, "missing required field `ward`"),
    "a whole row": ({"observation": {"id": "", "agee": 1.0} | {k: v for k, v in ROW.items() if k != "age"}}, 422,
                    "unknown features 'id', 'agee': did you mean 'age'?; not sent: age"),
    "one too many": ({"observation": ROW | {"visit": ""}}, 422, "unknown feature 'visit'. fix: leave it out"),
    "a string": ({"observation": ROW | {"age": "3"}}, 422, "got `str` - at `$.observation.age`"),
    "infinite": ({"observation": ROW | {"age": 1e300}}, 422, "'age' is missing or infinite"),
    "a word": ({"observation": ROW | {"ward": "d"}}, 422, "'ward' is 'd' in row 0, unknown in the log"),
    "rows differ": ({"observations": [ROW, {"age": 1.0}]}, 422, "missing required field `ward` - at `$.obs"),
    "mixed": ({"observations": [ROW, [1, 2]]}, 422, "Expected `object`, got `array` - at `$.observations[1]`"),
    "by position": ({"observation": [1.0, 2.0]}, 422, "name the features"),
    "leaf width": ({"observation": {"numeric": [1], "categorical": [0, 0]}}, 422, "has shape [1, 1]: expected [4]"),
    "a tower": ({"observation": {"numeric": [[[[[[1]]]]]], "categorical": [0, 0]}}, 422,
                "got `array` - at `$.observation.numeric[0]`"),
    "two kinds": ({"observation": {"numeric": [1, "2", 3, 0], "categorical": [0, 0]}}, 422,
                  "got `str` - at `$.observation.numeric[1]`"),
    "a giant code": ({"observation": {"numeric": [1, 2, 3, 0], "categorical": [10**30, 0]}}, 400,
                     "a whole number is beyond 64 bits"),
    "a code": ({"observation": {"numeric": [1, 2, 3, 0], "categorical": [9, 0]}}, 422, "9 in row 0: expected codes 0"),
    "too many": ({"observations": [ROW] * 4}, 413, "'observations' has 4 rows, at most 3 are allowed"),
    "none": ({"observations": []}, 422, "'observations' has no rows: expected at least one. fix: send [...]"),
    "misspelt": ({"observatoin": ROW}, 422, "unknown field 'observatoin': did you mean 'observation'?"),
    "a field": ({"observation": ROW, "maks": [True] * 5}, 422, "unknown field 'maks': did you mean 'mask'?"),
    "both": ({"observation": ROW, "observations": [ROW]}, 422, "the body needs {"),
    "nothing": ([], 422, "the body needs {"),
    "mask width": ({"observation": ROW, "mask": [True]}, 422, "mask has shape [1, 1]: expected [1, 5]"),
    "mask allows nothing": ({"observation": ROW, "mask": [False] * 5}, 422, "allows no action"),
    "ragged mask": ({"observations": [ROW] * 2, "masks": [[True], [True, True]]}, 422, "different lengths"),
    "a state": ({"observation": ROW, "state": [0.0]}, 422, "this policy is feed-forward and has no recurrent state"),
    "a seed": ({"observation": ROW, "seed": -1}, 422, "Expected `int` >= 0 - at `$.seed`"),
}  # fmt: skip
ODD = (None, True, -1, 0, 10**400, 1e308, "", "x", "b", [], {}, [[[[[[[1]]]]]]], [None], ["a", 1], {"age": 1})


def random_body(generator):
    """A valid body with a few replaced values, changed names, or cut and flipped bytes."""
    body = {"observations": [dict(ROW) for _ in range(generator.integers(1, 4))]}
    if generator.random() < 0.5:
        body = {"observation": dict(ROW)}
    for _ in range(generator.integers(0, 3)):
        place = generator.integers(5)
        row = body.get("observation") or body["observations"][0]
        odd = ODD[generator.integers(len(ODD))]
        if place == 0 and isinstance(row, dict):
            row[["age", "ward", "dose", "colour"][generator.integers(4)]] = odd
        elif place == 1 and isinstance(row, dict) and row:
            row.pop(next(iter(row)))
        elif place == 2:
            body[["mask", "masks", "state", "seed", "x"][generator.integers(5)]] = odd
        elif place == 3 and "observation" in body:
            body["observation"] = odd or dict(ROW)
    text = bytearray(json.dumps(body).encode())
    if generator.random() < 0.3:
        for place in generator.integers(0, len(text), 1 + generator.integers(4)):
            text[place] = generator.integers(256)
    return bytes(text[: generator.integers(len(text))] if generator.random() < 0.1 else text)
