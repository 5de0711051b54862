"""The answers to which the grader says something else than a notebook, with the reasons. The points never differ."""

ROUNDING = "what comes out is rounding, which depends on where in memory an array lies"
POISONED = "the answer makes the arrays NaN from which a notebook computes the hints"
NAMED = "the grader gives an error the name of the class that is known outside"
COUNTERFEIT = "in a notebook a class is seen that merely has the name of another; the grader sees that it takes less"
PLACED = "the message names the module of a class of the check, which is another in the grader"
REMEMBERED = "the answer remembers what the cells of a notebook fitted, of which the grader runs only those it needs"
CHANGED = "the answer changes a list, a table or a generator of the check; the grader hands over a copy"
WRITTEN = "NumPy shows a text as its own or as Python's, whichever array it comes from"
ADDRESS = "the hash of a function comes from its address in memory"
COMPLEX = "the grader takes no complex number"
PLAIN = "the grader takes plain data alone"
UNSEEDED = "the answer draws without a seed: no two runs are the same"
EXPLAINED = {
    ("lab-01", "fit-line", "an error with the name of the right outcome"): NAMED,
    ("lab-05", "pooled-covariance", "an error with the name of a shape"): NAMED,
    ("lab-01", "errors-by-degree", "an object that gives no errors"): PLAIN,
    ("lab-01", "fit-line", "NaN for more than three points, which become NaN, too"): POISONED,
    ("lab-01", "braking-errors", "the distances become NaN, and so do the errors"): POISONED,
    ("lab-02", "mse-gradient", "NaN for more than three instances, which become NaN, too"): POISONED,
    ("lab-03", "fit-ridge", "NaN for more than four instances, which become NaN, too"): POISONED,
    ("lab-04", "cross-entropy", "NaN for more than two instances, which become NaN, too"): POISONED,
    ("lab-05", "class-statistics", "labels turned into whole numbers"): WRITTEN,
    ("lab-05", "compare", "a number for each classifier, whatever it predicts"): ADDRESS,
    ("lab-09", "components-for", "the ratios are taken out of the list"): CHANGED,
    ("lab-02", "fit-least-squares", "the inverse of the Gram matrix"): ROUNDING,
    ("lab-02", "fit-least-squares", "partial least squares of scikit-learn"): ROUNDING,
    ("lab-02", "fit-least-squares", "a QR decomposition with a square R"): ROUNDING,
    ("lab-02", "fit-least-squares", "the intercept is the mean of y"): ROUNDING,
    ("lab-02", "split-errors", "an object that gives no errors"): PLAIN,
    ("lab-02", "split-errors", "clones of one model"): PLACED,
    ("lab-02", "split-errors", "no seed at all"): UNSEEDED,
    ("lab-03", "fit-ridge", "kernel ridge regression"): ROUNDING,
    ("lab-03", "error-curve", "an object that gives no errors"): PLAIN,
    ("lab-04", "accuracy-table", "no row for many instances"): UNSEEDED,
    ("lab-04", "accuracy-table", "not stratified"): ROUNDING,
    ("lab-04", "accuracy-table", "no seed at all"): UNSEEDED,
    ("lab-06", "error-by-k", "no row where all responses are equal"): UNSEEDED,
    ("lab-07", "bagged-prediction", "a generator of its own, without a seed"): UNSEEDED,
    ("lab-08", "make-candidates", "models of one's own with the names of others"): COUNTERFEIT,
    ("lab-09", "pca", "rows of the matrix of eigenvectors"): ROUNDING,
    ("lab-09", "pca", "eig instead of eigh"): COMPLEX,
    ("lab-13", "make-model", "complex probabilities"): COMPLEX,
    ("lab-09", "delete-values", "NumPy's global generator"): UNSEEDED,
    ("lab-10", "coverage", "NumPy's global generator"): UNSEEDED,
    ("lab-10", "coverage", "draws that the exact coverage decides"): CHANGED,
    ("lab-11", "choose", "names are popped"): CHANGED,
    ("lab-12", "far-from-known", "standardised in place"): CHANGED,
    ("lab-12", "make-model", "a memory of the counts from one fit to the next"): REMEMBERED,
    ("lab-13", "evening-before", "the table itself gets new columns"): CHANGED,
    ("lab-13", "make-model", "an unseeded forest"): UNSEEDED,
}
# What the grader says to wrong answers for which the file of answers has the words of the notebook
IN_THE_GRADER = {
    ("lab-09", "pca", "eig instead of eigh"): {"pca-2": "got complex ones", "pca-5": "got complex ones"},
    ("lab-13", "make-model", "complex probabilities"): dict.fromkeys(
        ["make-model-1", "make-model-2", "make-model-3"], "got complex ones"
    ),
    ("lab-01", "fit-line", "an error with the name of the right outcome"): {
        "fit-line-1": "your code raised ValueError: no message",
        "fit-line-2": "your code raised ValueError: no message",
        "fit-line-3": "got a ValueError",
    },
    ("lab-05", "pooled-covariance", "an error with the name of a shape"): {
        "pooled-covariance-3": "got the error ValueError: refuse only if",
    },
    ("lab-08", "make-candidates", "models of one's own with the names of others"): {
        "make-candidates-1": "your code raised ValueError: Invalid parameter",
    },
}
