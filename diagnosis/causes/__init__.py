"""Why a module is wrong: executable hypotheses, one file a kind."""
