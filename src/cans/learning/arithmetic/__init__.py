"""The functions on arrays that learner, aggregator, stores and compiled engine share."""
